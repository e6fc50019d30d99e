#!/bin/sh
# One version in a folder of its own; /opt/s3dlm points to the one in use. Run as root in a checkout.
# TORCH: https://download.pytorch.org/whl/cpu, or /cu126 for a GPU.
set -eu
version=${1:?version, such as 0.3.0}
python3 -m venv "/opt/s3dlm-$version"
pip="/opt/s3dlm-$version/bin/pip"
"$pip" install --no-deps --require-hashes -r deploy/requirements.lock
"$pip" install --index-url "${TORCH:-https://download.pytorch.org/whl/cpu}" "$(grep '^torch==' constraints.txt)"
"$pip" install --no-deps --no-build-isolation .
ln -sfn "/opt/s3dlm-$version" /opt/s3dlm
