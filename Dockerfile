FROM python:3.12-slim

RUN useradd --create-home --uid 1000 otboard
WORKDIR /srv/otboard
COPY requirements/server.txt requirements/server.txt
RUN pip install --no-cache-dir --require-hashes -r requirements/server.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY app app
COPY worker worker
COPY migrations migrations
COPY static static
COPY docs docs
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
    && mkdir -p /var/lib/otboard && chown otboard /var/lib/otboard
USER otboard
ENV OTBOARD_DATA=/var/lib/otboard
VOLUME /var/lib/otboard
EXPOSE 8000
CMD ["otboard", "serve", "--host", "0.0.0.0", "--port", "8000"]
