#!/bin/sh
# Builds the image without a Docker daemon or a registry: with podman, on a base of Debian
# packages. Run as root, with podman and debootstrap installed:
#   deploy/container/build.sh [further arguments of podman build]
# BASE=... selects another base image; BUILDAH_ISOLATION=chroot is for use inside a container.
set -eu
cd "$(dirname "$0")/../.."

if [ -z "${BASE:-}" ]; then
    BASE=localhost/debian:bookworm
    if ! podman image exists "$BASE"; then
        root=$(mktemp -d)
        trap 'rm -rf "$root"' EXIT
        debootstrap --variant=minbase bookworm "$root"
        rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
        tar -C "$root" -c . | podman import --quiet - "$BASE"
        rm -rf "$root"
    fi
fi
exec podman build --format docker --build-arg BASE="$BASE" --ignorefile .dockerignore \
    -f deploy/container/Containerfile -t quafka:local "$@" .
