#!/bin/sh
# The key, the unit, and a first answer. Run as root in a checkout, after install.sh.
set -eu
install -d -m 0700 /etc/s3dlm
key=$(python3 -c "import secrets; print(secrets.token_urlsafe())")
(umask 077 && echo "S3DLM_API_KEY=$key" > /etc/s3dlm/environment)
install -m 0644 deploy/s3dlm.service /etc/systemd/system/
systemctl daemon-reload
systemctl enable --now s3dlm
curl -s --retry 60 --retry-connrefused --retry-delay 2 http://127.0.0.1:8000/health
