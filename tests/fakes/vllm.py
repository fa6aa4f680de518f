# SPDX-License-Identifier: GPL-3.0-or-later
"""A threaded HTTP server that answers as vLLM 0.32 does, and badly where a test wants it.

The bodies have the shape that a real server gave for the smoke model. ``behaviour`` maps a path (and ``stream``,
``tools`` and ``image`` for chats of these kinds) to a function that takes the request handler and answers in its own
way.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "baremetal/gpt-oss-smoke"
ANSWER = "The fleet is ready."
USAGE = {"prompt_tokens": 74, "total_tokens": 84, "completion_tokens": 10, "prompt_tokens_details": None}


def models_body():
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "vllm", "max_model_len": 2048}]}


def chat_body(content=ANSWER, finish="stop", reasoning=None):
    message = {"role": "assistant", "content": content, "refusal": None, "reasoning": reasoning}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish, "stop_reason": 200002}
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": MODEL, "choices": [choice], "usage": USAGE}


def completion_body(text=" ready."):
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    return {"id": "cmpl-1", "object": "text_completion", "model": MODEL, "choices": [choice], "usage": USAGE}


def response_body(text=ANSWER, status="completed", reason=None):
    parts = [{"annotations": [], "text": text, "type": "output_text", "logprobs": None}]
    output = [
        {"id": "rs_1", "summary": [], "type": "reasoning", "content": [], "status": None},
        {"id": "msg_1", "content": parts, "role": "assistant", "status": "completed", "type": "message"},
    ]
    details = {"reason": reason} if reason else None
    usage = {"input_tokens": 74, "output_tokens": 10, "total_tokens": 84}
    return {"id": "resp_1", "object": "response", "status": status, "output": output, "usage": usage,
            "incomplete_details": details, "model": MODEL, "error": None}  # fmt: skip


def call_body(name="get_weather", arguments='{"city": "Paris"}'):
    body = chat_body(content=None, finish="tool_calls")
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    body["choices"][0]["message"]["tool_calls"] = [call]
    return body


def embedding_body(*vectors):
    vectors = vectors or ([1.0, 0.5, 0.0], [0.9, 0.6, 0.1], [-0.2, 0.1, 1.0])
    data = [{"index": number, "object": "embedding", "embedding": each} for number, each in enumerate(vectors)]
    return {"id": "embd-1", "object": "list", "model": MODEL, "data": data, "usage": USAGE}


def rerank_body(right=0.93, other=0.02):
    results = [{"index": 1, "document": {"text": "b"}, "relevance_score": right}]
    results.append({"index": 0, "document": {"text": "a"}, "relevance_score": other})
    return {"id": "score-1", "model": MODEL, "usage": USAGE, "results": results}


def pooled_body(**entry):
    return {"id": "pool-1", "object": "list", "model": MODEL, "data": [{"index": 0, **entry}], "usage": USAGE}


def stream_chunks(texts=("The", " fleet", " is", " ready", "."), usage=True):
    def chunk(delta, finish=None):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": MODEL, "choices": [choice]}

    chunks = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": text}) for text in texts)]
    chunks.append(chunk({"content": ""}, "stop"))
    return [*chunks, {**chunks[0], "choices": [], "usage": USAGE}] if usage else chunks


def kind_of(payload):
    """Return the kind of chat that a request is for, where the path does not say it."""
    pictures = [part for each in payload.get("messages", ()) if isinstance(each["content"], list) for part in each]
    return next((key for key in ("stream", "tools") if payload.get(key)), "image" if pictures else "")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(self.path, None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        form = self.headers["Content-Type"].startswith("multipart/form-data; boundary=")
        self.answer(self.path, {"form": body} if form else json.loads(body))

    def answer(self, path, payload):
        fake = self.server.fake
        self.payload = payload
        fake.asked.append((path, payload, self.headers.get("Authorization")))
        if path.startswith("/v1") and fake.api_key and self.headers.get("Authorization") != f"Bearer {fake.api_key}":
            return self.send_json({"error": "Unauthorized"}, 401)
        key = kind_of(payload or {}) or path
        return (fake.behaviour.get(key) or GOOD[key])(self)

    def send_json(self, body, status=200):
        self.send_text(json.dumps(body), status)

    def send_text(self, text, status=200, length=None):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def start_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_piece(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def send_stream(self, chunks, done=True, pause=0.0):
        self.start_stream()
        for chunk in chunks:
            time.sleep(pause)
            self.send_piece(f"data: {json.dumps(chunk)}\n\n")
        if done:
            self.send_piece("data: [DONE]\n\n")
        self.send_piece("")

    def log_message(self, *_args):
        pass


GOOD = {
    "/health": lambda handler: handler.send_text(""),
    "/v1/models": lambda handler: handler.send_json(models_body()),
    "/v1/chat/completions": lambda handler: handler.send_json(chat_body()),
    "/v1/responses": lambda handler: handler.send_json(response_body()),
    "/v1/completions": lambda handler: handler.send_json(completion_body()),
    "stream": lambda handler: handler.send_stream(stream_chunks()),
    "tools": lambda handler: handler.send_json(call_body()),
    "image": lambda handler: handler.send_json(chat_body("Red.")),
    "/v1/embeddings": lambda handler: handler.send_json(embedding_body()),
    "/rerank": lambda handler: handler.send_json(rerank_body()),
    "/classify": lambda handler: handler.send_json(pooled_body(label="joy", probs=[0.9, 0.1], num_classes=2)),
    "/pooling": lambda handler: handler.send_json(pooled_body(data=[[0.1, 0.2], [0.3, 0.4]])),
    "/v1/audio/transcriptions": lambda handler: handler.send_json({"text": "", "usage": {"seconds": 1}}),
}


class Fake:
    """The server: its url, what it was asked so far, the key it wants and how it behaves where not well."""

    def __init__(self):
        self.asked, self.behaviour, self.api_key = [], {}, ""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.fake = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def self_signed(directory):
    """Return a server's TLS context and its certificate, which is for another name and signed by nobody."""
    paths = [str(directory / name) for name in ("cert.pem", "key.pem")]
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=elsewhere"]
    subprocess.run([*words, "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*paths)
    return context, paths[0]


@contextlib.contextmanager
def fake_vllm(tls=None):
    fake = Fake()
    if tls:
        # The handshake belongs to the thread of its connection.
        fake.server.socket = tls.wrap_socket(fake.server.socket, server_side=True, do_handshake_on_connect=False)
        fake.url = fake.url.replace("http:", "https:")
    thread = threading.Thread(target=fake.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield fake
    finally:
        fake.server.shutdown()
        fake.server.server_close()
        thread.join()
