# syntax=docker/dockerfile:1
# The operator's image: docker build --tag aiscope-operator:VERSION .
# hack/image builds the like without a container engine, with the sizes checked.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# Static, for a base image without a C library; the target is named so that procedural macros are not built statically too.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    target=$(uname -m)-unknown-linux-gnu && \
    RUSTFLAGS="-C target-feature=+crt-static" \
      cargo build --release --locked --target "$target" --bin aiscope-operator && \
    cp "target/$target/release/aiscope-operator" /aiscope-operator

# Root certificates, a user who is not root, nothing else.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /aiscope-operator /usr/local/bin/aiscope-operator
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/aiscope-operator"]
CMD ["run"]
