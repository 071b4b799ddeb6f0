# A holder's node of a Flower federation: policy, schema and data mounted read-only, the ledger in a
# volume. See docs/docker.md.
#   make dist && docker build -f docker/node.Dockerfile -t noisewise-node .
FROM python:3.12-slim
COPY dist/*.whl /tmp/
RUN set -e; wheel=$(ls /tmp/*.whl); pip install --no-cache-dir "${wheel}[federation]"; rm "$wheel"; \
    useradd --uid 10001 --create-home holder; install -d -o holder /ledger
ENV NUMBA_CACHE_DIR=/tmp/numba MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1 \
    FLWR_HOME=/tmp/flwr FLWR_TELEMETRY_ENABLED=0
USER 10001
WORKDIR /holder
VOLUME ["/ledger"]
ENTRYPOINT ["noisewise", "federation", "node", "--policy", "/holder/policy.yaml"]
