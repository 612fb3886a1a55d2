#!/bin/sh
# Builds the image without a Docker daemon or a registry: with buildah, on a base of Debian
# packages. Run as root, with buildah and debootstrap installed:
#   deploy/container/build.sh [further arguments of buildah build]
# BASE=... selects another base image; BUILDAH_ISOLATION=chroot is for use inside a container.
set -eu
cd "$(dirname "$0")/../.."

if [ -z "${BASE:-}" ]; then
    BASE=localhost/debian:bookworm
    if ! buildah inspect --type image "$BASE" >/dev/null 2>&1; then
        root=$(mktemp -d)
        trap 'rm -rf "$root"' EXIT
        debootstrap --variant=minbase bookworm "$root"
        rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
        container=$(buildah from scratch)
        buildah add -q "$container" "$root" /
        buildah commit -q --rm "$container" "$BASE"
    fi
fi
exec buildah build --format docker --build-arg BASE="$BASE" --ignorefile .dockerignore \
    -f deploy/container/Containerfile -t quafka:local "$@" .
