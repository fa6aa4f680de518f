# SPDX-License-Identifier: GPL-3.0-or-later
"""A model that lets an agent run one command and then ends, in the form of each API: as vLLM, streams and others.

It calls the tool of the agent that runs commands, whatever the agent names it, and says DONE when it has a result.
"""

from __future__ import annotations

import json
import re

from tests.fakes.counted_engine import NUMBERS, OWN, CountedEngine, dumped, params
from tests.fakes.stopping_engine import answer

DONE = "The fleet is ready."
RUNS = re.compile("bash|shell|exec", re.IGNORECASE)


def tool_of(request, command):
    """Return name and arguments of the tool that runs a command, None where the agent has none."""
    for tool in request.get("tools") or ():
        tool = tool.get("function") or tool
        schema = tool.get("parameters") or tool.get("input_schema") or {}
        known = schema.get("properties") or {}
        name = next((name for name in ("command", "cmd") if name in known), None)
        if name and RUNS.search(tool.get("name", "")):
            words = ["bash", "-c", command] if known[name].get("type") == "array" else command
            more = {each: "run a command" for each in schema.get("required") or () if known[each]["type"] == "string"}
            return tool["name"], {**more, name: words}
    return None


class AgentEngine(CountedEngine):
    """Answers agents; ``command`` is what they shall run."""

    def __init__(self, command):
        super().__init__()
        self.command = command

    async def serve(self, path, request, send, gone):
        if path == "/v1/messages/count_tokens":
            return await answer(send, dumped({"input_tokens": 10}))
        tool = None if result_in(request) else tool_of(request, self.command)
        head = {"id": "x", "model": request.get("model", "m"), "created": 1}
        form = {"/v1/messages": messages, "/v1/responses": responses}.get(path, chunks)
        whole, events = form(request, head, tool)
        stream = bool(request.get("stream"))
        prompt, name = {"prompt_token_ids": [1] * 10}, f"cmpl-{next(NUMBERS)}"
        async for _output in self.state.engine_client.generate(prompt, params(5, stream), name):
            pass
        OWN.get()["done"] = True
        if not request.get("stream"):
            return await answer(send, dumped(whole))
        kind = (b"content-type", b"text/event-stream; charset=utf-8")
        await send({"type": "http.response.start", "status": 200, "headers": [kind]})
        for event in events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        return await send({"type": "http.response.body", "body": b""})


def result_in(request):
    """Return whether a tool has run."""
    items = [item for item in [*(request.get("messages") or ()), *listed(request.get("input"))] if item]
    parts = [part for item in items for part in [item, *listed(item.get("content"))]]
    return any(
        part.get("role") == "tool"
        or part.get("type") in ("tool_result", "function_call_output", "custom_tool_call_output")
        for part in parts
    )


def listed(value):
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def event(name, **body):
    return f"event: {name}\n".encode() + b"data: " + dumped({"type": name, **body}) + b"\n\n"


def messages(_request, head, tool):
    """Return an answer of Anthropic's API, and its events."""
    if tool:
        block = {"type": "tool_use", "id": "toolu_1", "name": tool[0], "input": tool[1]}
        begun, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(tool[1])}
    else:
        block = {"type": "text", "text": DONE}
        begun, delta = {**block, "text": ""}, {"type": "text_delta", "text": DONE}
    why, usage = ("tool_use" if tool else "end_turn"), {"input_tokens": 10, "output_tokens": 5}
    whole = {
        "id": "msg_x", "type": "message", "role": "assistant", "model": head["model"], "content": [block],
        "stop_reason": why, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    start = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 0}}
    return whole, [
        event("message_start", message=start),
        event("content_block_start", index=0, content_block=begun),
        event("content_block_delta", index=0, delta=delta),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": why, "stop_sequence": None}, usage=usage),
        event("message_stop"),
    ]


def responses(_request, head, tool):
    """Return an answer of the Responses API, and its events."""
    if tool:
        text = json.dumps(tool[1])
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool[0], "arguments": text}
        item["status"] = "completed"
        inner = [
            event(
                "response.output_item.added", output_index=0, item={**item, "arguments": "", "status": "in_progress"}
            ),
            event("response.function_call_arguments.delta", item_id="fc_1", output_index=0, delta=text),
            event("response.function_call_arguments.done", item_id="fc_1", output_index=0, arguments=text),
        ]
    else:
        part = {"type": "output_text", "text": DONE, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        inner = [
            event("response.output_item.added", output_index=0, item={**item, "content": [], "status": "in_progress"}),
            event("response.content_part.added", **at, part={**part, "text": ""}),
            event("response.output_text.delta", **at, delta=DONE),
            event("response.output_text.done", **at, text=DONE),
            event("response.content_part.done", **at, part=part),
        ]
    usage = {
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15,
    }  # fmt: skip
    whole = {
        "id": "resp_x", "object": "response", "created_at": 1, "status": "completed", "model": head["model"],
        "output": [item], "usage": usage, "parallel_tool_calls": True, "tools": [], "tool_choice": "auto",
    }  # fmt: skip
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    return whole, [
        event("response.created", response=begun),
        *inner,
        event("response.output_item.done", output_index=0, item=item),
        event("response.completed", response=whole),
    ]


def chunks(request, head, tool):
    """Return an answer of the OpenAI API, and its events."""
    message = {"role": "assistant", "content": None if tool else DONE}
    if tool:
        function = {"name": tool[0], "arguments": json.dumps(tool[1])}
        message["tool_calls"] = [{"index": 0, "id": "call_1", "type": "function", "function": function}]
    why = "tool_calls" if tool else "stop"
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    whole = {**head, "object": "chat.completion", "usage": usage}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": why}]
    each = {**head, "object": "chat.completion.chunk"}
    found = [
        {**each, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**each, "choices": [{"index": 0, "delta": {}, "finish_reason": why}]},
    ]
    if (request.get("stream_options") or {}).get("include_usage"):
        found.append({**each, "choices": [], "usage": usage})
    return whole, [*(b"data: " + dumped(chunk) + b"\n\n" for chunk in found), b"data: [DONE]\n\n"]
