# A service in a container. PIP_OPTIONS may name an index with torch for a CPU alone, which is smaller:
#   docker build -t s6mod .
#   docker run -p 8000:8000 -e S6MOD_TOKEN=... -v s6mod:/service --stop-timeout 60 s6mod
# A reader beside it, on the same volume:
#   docker run -p 8001:8000 -e S6MOD_TOKEN=... -v s6mod:/service:ro s6mod --read-only
FROM python:3.12-slim
RUN useradd --create-home --uid 10001 s6mod && mkdir /service && chown s6mod /service
WORKDIR /app
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
ARG PIP_OPTIONS=""
RUN pip install --no-cache-dir $PIP_OPTIONS -c constraints.txt '.[serve]'
USER s6mod
VOLUME /service
EXPOSE 8000
HEALTHCHECK --interval=30s --start-period=60s CMD python -c \
  "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=5)"
STOPSIGNAL SIGTERM
ENTRYPOINT ["s6mod", "serve", "/service", "--host", "0.0.0.0"]
