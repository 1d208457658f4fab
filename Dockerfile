# The command `toolcrib` with everything that it can use: docker build -t toolcrib .
# docker run --rm -v "$PWD:/project" toolcrib run
FROM python:3.13-slim

COPY pyproject.toml README.md LICENSE /src/
COPY runtime /src/runtime
RUN pip install --no-cache-dir "/src[all]" && rm -r /src && useradd --create-home toolcrib

USER toolcrib
WORKDIR /project
ENTRYPOINT ["toolcrib"]
CMD ["--help"]
