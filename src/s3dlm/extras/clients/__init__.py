"""Other shapes of a conversation: OpenAI's Responses and Anthropic's Messages, as routes of the server."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from s3dlm.extras.clients import dialects
from s3dlm.server.app import ERRORS, STREAMED, Shared, reply_to
from s3dlm.server.reporting import ERROR_SHAPES

router = APIRouter(responses=ERRORS)
MESSAGES = "/v1/messages"
ERROR_SHAPES[MESSAGES] = dialects.anthropic_error


@router.post("/v1/responses", responses=STREAMED)
async def responses(body: dialects.ResponsesRequest, request: Request, service: Shared) -> Response:
    """Answer a conversation, in the shape of OpenAI's Responses."""
    return await reply_to(request, service, body.as_chat(), dialects.ResponsesReply)


@router.post(MESSAGES, responses=STREAMED)
async def messages(body: dialects.MessagesRequest, request: Request, service: Shared) -> Response:
    """Answer a conversation, in the shape of Anthropic's Messages."""
    return await reply_to(request, service, body.as_chat(), dialects.MessagesReply)
