"""TLS in front of a Postgres: the embedded server is built without it, so a proxy speaks TLS to clients."""

import asyncio
import datetime as dt
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SSL_REQUEST = struct.pack("!II", 8, 80877103)
_A_DAY = dt.timedelta(days=1)


class Authority:
    """A certificate authority that writes its certificate, and keys with certificates, into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        """Create the authority; ``certificate`` is its file."""
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = folder / f"{name}.crt"
        builder = self._builder(name).public_key(self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(self._key_identifier(), critical=False)
        builder = builder.add_extension(_CA_USAGE, critical=True)
        self.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(self, host: str) -> tuple[Path, Path]:
        """Return the files of a certificate for a host, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(host).public_key(key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        certificate, key_file = self._folder / f"{host}.crt", self._folder / f"{host}.key"
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, key_file

    def _key_identifier(self) -> x509.SubjectKeyIdentifier:
        return x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())

    def _builder(self, subject: str) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._name)]))
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _A_DAY)
            .not_valid_after(now + _A_DAY)
        )


_CA_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@asynccontextmanager
async def tls_front(
    postgres_url: str, certificate: tuple[Path, Path], client_authority: Path | None = None
) -> AsyncIterator[int]:
    """Serve TLS on a port of loopback and pass everything on to a Postgres on a unix socket.

    With ``client_authority`` clients must have a certificate of it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if client_authority:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    socket = Path(parse_qs(urlsplit(postgres_url).query)["host"][0]) / ".s.PGSQL.5432"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            if await reader.readexactly(len(SSL_REQUEST)) == SSL_REQUEST:
                writer.write(b"S")
                await writer.start_tls(context)
                await _forward(reader, writer, socket)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, socket: Path) -> None:
    inner_reader, inner_writer = await asyncio.open_unix_connection(socket)
    pumps = [
        asyncio.create_task(_pump(reader, inner_writer)),
        asyncio.create_task(_pump(inner_reader, writer)),
    ]
    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    for pump in pumps:
        pump.cancel()
    inner_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
