#!/bin/sh
# Builds a Debian package of the command with its dependencies in /opt/quafka, and the systemd
# units. It is for the Debian or Ubuntu release, architecture and Python of this machine. Needs
# python3-venv and dpkg-deb, and PyPI or an index that PIP_INDEX_URL names; no root.
#   deploy/debian/build.sh [FOLDER]     writes FOLDER/quafka_VERSION_ARCHITECTURE.deb; default: dist
set -eu
cd "$(dirname "$0")/../.."
out=${1:-dist}
python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
stage=$work/stage
opt=$stage/opt/quafka

# The extras are those of the image. --only-binary: nothing is compiled.
"$python" -m venv "$work/pip"
"$work/pip/bin/pip" wheel --quiet --no-deps --wheel-dir "$work" .
mkdir -p "$stage/opt"
"$python" -m venv --without-pip "$opt"
"$work/pip/bin/pip" --python "$opt/bin/python" install --quiet --no-compile --only-binary :all: \
    "$(echo "$work"/*.whl)[console,redis,s3]"
version=$("$opt/bin/quafka" --version | cut -d ' ' -f 2 | sed 's/\.dev/~dev/; s/rc/~rc/')
find "$opt" -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -r {} +
find "$opt" -name '*.pyi' -delete
# The environment moves: scripts and bytecode name its place after the installation.
grep -rlIF "$opt" "$opt/bin" "$opt/pyvenv.cfg" | xargs sed -i "s|$opt|/opt/quafka|g"
find "$opt" -name RECORD -path '*.dist-info/*' -delete   # its hashes are of other scripts
"$python" -m compileall -q -s "$stage" -p / --invalidation-mode unchecked-hash "$opt/lib"

install -D -m 644 -t "$stage/usr/lib/systemd/system" deploy/systemd/*.service
install -D -m 644 deploy/systemd/sysusers.conf "$stage/usr/lib/sysusers.d/quafka.conf"
install -D -m 644 deploy/systemd/tmpfiles.conf "$stage/usr/lib/tmpfiles.d/quafka.conf"
install -D -m 640 -t "$stage/etc/quafka" deploy/systemd/config/*.toml
mkdir -p "$stage/usr/bin" "$stage/usr/share/doc/quafka"
ln -s /opt/quafka/bin/quafka "$stage/usr/bin/quafka"
install -m 644 LICENSE "$stage/usr/share/doc/quafka/copyright"
cp -r deploy/systemd/examples "$stage/usr/share/doc/quafka/examples"
gzip -9 -n -c CHANGELOG.md > "$stage/usr/share/doc/quafka/changelog.gz"

minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next=$("$python" -c 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')
architecture=$(dpkg --print-architecture)
mkdir "$stage/DEBIAN"
cat > "$stage/DEBIAN/control" <<EOF
Package: quafka
Version: $version
Architecture: $architecture
Maintainer: Quafka maintainers <maintainers@quafka.invalid>
Section: net
Priority: optional
Depends: python3 (>= $minor~), python3 (<< $next~), ca-certificates, systemd (>= 249)
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f 1)
Homepage: https://github.com/quafka/quafka
Description: Kafka-compatible log, on a disk or in an object store
 A gateway that serves the Kafka protocol, a broker that keeps the log, a console,
 and the command that administers them. Dependencies are in /opt/quafka.
EOF
(cd "$stage" && find etc -type f | sed 's|^|/|' | sort) > "$stage/DEBIAN/conffiles"
cat > "$stage/DEBIAN/postinst" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    systemd-sysusers quafka.conf
    systemd-tmpfiles --create quafka.conf
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        # After an update: units that run go on with the new version. None is started otherwise.
        systemctl try-restart quafka-broker.service quafka-gateway.service quafka-console.service
    fi
fi
EOF
cat > "$stage/DEBIAN/prerm" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now quafka-console.service quafka-gateway.service quafka-broker.service
fi
EOF
cat > "$stage/DEBIAN/postrm" <<'EOF'
#!/bin/sh
# Records and keys in /var/lib/quafka-* stay, also after a purge.
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
EOF
chmod 755 "$stage/DEBIAN/postinst" "$stage/DEBIAN/prerm" "$stage/DEBIAN/postrm"
mkdir -p "$out"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} \
    dpkg-deb --root-owner-group -Zzstd -z9 --build "$stage" "$out" >/dev/null
echo "$out/quafka_${version}_$architecture.deb"
