# A holder's noisewise: no root, data mounted read-only, the ledger in a volume. See docs/docker.md.
#   make dist && docker build -f docker/holder.Dockerfile -t noisewise-holder .
FROM python:3.12-slim
COPY dist/*.whl /tmp/
RUN pip install --no-cache-dir /tmp/*.whl && rm /tmp/*.whl \
    && useradd --uid 10001 --create-home holder \
    && install -d -o holder /ledger /out
# Compiled code and fonts are kept in memory: the rest of the file system may be read-only.
ENV NUMBA_CACHE_DIR=/tmp/numba MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /out
VOLUME ["/ledger", "/out"]
ENTRYPOINT ["noisewise"]
CMD ["--help"]
