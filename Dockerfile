# One image for every process: worker, beat, the command line, and `run` with its embedded database.

# Debian 13 with Python 3.13. Renew the digest to take in the base's fixes; another base needs Python
# 3.11 or newer with venv, and Debian's package tool.
ARG BASE=python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
# WHY a second environment: pip and what makes the bill of materials stay here.
RUN python3 -m venv /opt/tools && python3 -m venv --without-pip /opt/sema
COPY requirements-sbom.lock ./
RUN /opt/tools/bin/python -m pip install --require-hashes --only-binary=:all: -r requirements-sbom.lock
COPY requirements.lock ./
RUN /opt/tools/bin/python -m pip --python /opt/sema/bin/python install --require-hashes --only-binary=:all: -r requirements.lock
COPY pyproject.toml README.md ./
COPY config config
COPY memory memory
COPY store store
COPY tasks tasks
COPY worker worker
# WHY no isolation: what builds the wheel is locked as well. It is not needed afterwards.
RUN /opt/tools/bin/python -m pip --python /opt/sema/bin/python install --no-deps --no-build-isolation . \
    && /opt/tools/bin/python -m pip --python /opt/sema/bin/python uninstall --yes setuptools \
    && /opt/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
        --output-reproducible --of JSON -o /opt/sema/sbom.cdx.json /opt/sema/bin/python

FROM ${BASE} AS image
# WHY the library: the embedded database of `run` asks for the name of its user, and a user id chosen at
# the start of a container has none. WHY no folder for everybody but /tmp: nothing else is written to.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends 'libnss-wrapper=1.1.*' \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log \
    && find / -xdev -type d -perm -0002 ! -path /tmp -exec chmod o-w {} +
COPY --from=build /opt/sema /opt/sema
COPY deploy/image/start deploy/image/healthcheck.py /opt/sema/image/

# WHY all in /tmp: it is the one place that needs to be writable, whoever the user is.
ENV PATH=/opt/sema/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MAINT_DATA_DIR=/tmp/sema-maintenance \
    MAINT_HTTP_ADDRESS=0.0.0.0:9464
WORKDIR /opt/sema
# WHY a number: Kubernetes can only then see that it is not root.
USER 10001:10001
EXPOSE 9464
STOPSIGNAL SIGTERM
# For builders that write Docker's format; Kubernetes has probes of its own.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["/opt/sema/bin/python", "-I", "-S", "/opt/sema/image/healthcheck.py"]
ENTRYPOINT ["/opt/sema/image/start"]
CMD ["--help"]

ARG BASE
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="sema-maintenance" \
    org.opencontainers.image.description="Scheduled maintenance of the Sema background-agent ledger." \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.created="${CREATED}" \
    org.opencontainers.image.source="${SOURCE}" \
    org.opencontainers.image.base.name="${BASE}"
