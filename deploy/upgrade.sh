#!/bin/sh
# Install beside the old version, switch, and go back by itself if the new one is not healthy.
set -eu
old=$(readlink /opt/s3dlm)
deploy/install.sh "${1:?new version}"
systemctl restart s3dlm  # requests under way have --grace seconds
if ! curl -sf --retry 60 --retry-all-errors --retry-delay 2 http://127.0.0.1:8000/health; then
    ln -sfn "$old" /opt/s3dlm
    systemctl restart s3dlm
    exit 1
fi
