"""The ways in which targets, encoders and loggers write a secret."""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus


def spellings(secret: str) -> dict[str, str]:
    """Return the text in every encoding, by the name of the encoding."""
    raw = secret.encode()
    return {
        "as it is": secret,
        "lower": secret.lower() if len(secret.lower()) == len(secret) else secret,
        "percent": quote(secret, safe=""),
        "percent, lower case": "".join(f"%{byte:02x}" for byte in raw),
        "path": quote(secret),
        "form": quote_plus(secret),
        "percent twice": quote(quote(secret, safe=""), safe=""),
        "json": json.dumps(secret)[1:-1],
        "json, not ascii": json.dumps(secret, ensure_ascii=False)[1:-1],
        "json twice": json.dumps(json.dumps(secret)),
        "html": html.escape(secret),
        "html, by number": "".join(f"&#{ord(character)};" for character in secret),
        "html, in hexadecimal": "".join(f"&#x{ord(character):X};" for character in secret),
        "hexadecimal": raw.hex().upper(),
        **{
            f"{name} {before} {after}": encode(b"u" * before + raw + b"v" * after).decode()
            for name, encode in (("base64", b64encode), ("urlsafe", urlsafe_b64encode))
            for before in range(3)
            for after in range(3)
        },
    }
