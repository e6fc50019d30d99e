"""Serve a model and call it like any OpenAI-compatible server, here in one process.

On the command line: s3dlm serve --model tiny --port 8000
"""

import json
import threading
import time
import urllib.request

import uvicorn

import s3dlm
from s3dlm.server.app import create_app

server = uvicorn.Server(uvicorn.Config(create_app(s3dlm.load("tiny")), port=0, log_level="warning"))
thread = threading.Thread(target=server.run)
thread.start()
while not server.started:
    time.sleep(0.02)
port = server.servers[0].sockets[0].getsockname()[1]

body = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Target: 15 Numbers: 10, 1, 6"}],
    "task": "countdown",  # beyond OpenAI's own fields: the task and every setting of the search
    "method": "revise",
    "seed": 1,
}
request = urllib.request.Request(
    f"http://127.0.0.1:{port}/v1/chat/completions",
    data=json.dumps(body).encode(),
    headers={"Content-Type": "application/json"},
)
try:
    with urllib.request.urlopen(request) as response:
        reply = json.load(response)
    print(reply["choices"][0]["message"]["content"])
finally:
    server.should_exit = True
    thread.join()
