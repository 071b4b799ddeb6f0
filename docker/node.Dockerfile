# A holder's node of a Flower federation: policy, schema and data mounted read-only, the ledger in a
# volume. See docs/docker.md.
#   make dist && docker build -f docker/node.Dockerfile -t noisewise-node .
# The base image by its digest (Python 3.12.14 on Debian trixie): the tag may move, this can't. A newer one:
#   docker buildx imagetools inspect python:3.12-slim
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
COPY locks/node.txt dist/*.whl /tmp/
RUN pip install --no-cache-dir --require-hashes --requirement /tmp/node.txt \
    && pip install --no-cache-dir --no-deps --no-index /tmp/*.whl \
    && pip check && rm /tmp/node.txt /tmp/*.whl \
    && useradd --uid 10001 --create-home holder && install -d -o holder /ledger
ENV NUMBA_CACHE_DIR=/tmp/numba MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1 \
    FLWR_HOME=/tmp/flwr FLWR_TELEMETRY_ENABLED=0
USER 10001
WORKDIR /holder
VOLUME ["/ledger"]
ENTRYPOINT ["noisewise", "federation", "node", "--policy", "/holder/policy.yaml"]
