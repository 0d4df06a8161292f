"""``autospec.Client`` and ``autospec.AsyncClient``: clients of httpx with a policy inside."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import httpx

from autospec.client import native, pools
from autospec.client.async_transport import AsyncRoutingTransport
from autospec.client.core import Core, Waits
from autospec.client.counters import Counters, exposition
from autospec.client.events import ResponseReport, RoutingDecision
from autospec.client.native import Generation, Messages
from autospec.client.router import Router
from autospec.client.servers import Servers
from autospec.client.setup import PolicyLike, ProfileLike, make_steering
from autospec.client.transport import RoutingTransport

__all__ = ["AsyncClient", "Client"]

#: Waits of a client that is told none, in s; generation takes its time, a connection does not.
TIMEOUT: Final = httpx.Timeout(600.0, connect=5.0)
#: Options that httpx's clients pass on to a transport of their own making.
_SENDING: Final = frozenset({"verify", "cert", "http1", "http2", "limits", "proxy"})

_D = TypeVar("_D", bound=Callable[[RoutingDecision], Any])
_R = TypeVar("_R", bound=Callable[[ResponseReport], Any])


def _core(
    url: str,
    plain_url: str | None,
    *,
    profile: ProfileLike | None,
    policy: PolicyLike | None,
    depth: int | None,
    engine_switches: bool,
    api_key: str | None,
    openai_details: bool,
    waits: Waits,
) -> Core:
    servers = Servers(url, plain_url, api_key=api_key, details=openai_details)
    routes = plain_url is not None
    steering = None if engine_switches else make_steering(profile, policy, depth, routes=routes)
    router = Router(
        steering, has_plain=routes, clock=time.monotonic, silence_s=waits.stream_start_s
    )
    return Core(servers, router, waits)


def _split(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What httpx's transport is given of the user's options, and what its client."""
    sending = {name: options.pop(name) for name in _SENDING & options.keys()}
    if "trust_env" in options:
        sending["trust_env"] = options["trust_env"]
    return sending, {"timeout": TIMEOUT, **options}


class _Steered:
    """What both clients have besides httpx's."""

    _core: Core

    @property
    def decision(self) -> RoutingDecision:
        """Where new requests go now, and why."""
        return self._core.router.decision

    def on_decision(self, hook: _D) -> _D:
        """Call ``hook`` with every ``RoutingDecision``, in the thread of its request.

        What it raises breaks no request. Usable as a decorator.
        """
        self._core.router.hooks.decision.append(hook)
        return hook

    def on_response(self, hook: _R) -> _R:
        """Call ``hook`` with a ``ResponseReport`` of every answered generation request.

        Otherwise as ``on_decision``.
        """
        self._core.router.hooks.response.append(hook)
        return hook

    def counters(self) -> Counters:
        """What was counted so far."""
        return self._core.router.counters()

    def metrics(self) -> str:
        """The same in Prometheus' text format."""
        return exposition(self.counters())


class Client(_Steered, httpx.Client):
    """A client for SGLang, to be used as it is or as ``http_client`` of ``openai.OpenAI``.

    New requests to the speculative server's generation endpoints go where the policy says; requests
    that a server fails before the first byte of its answer go to the other one. All other requests
    go where they are addressed. Relative addresses are below ``url``. Safe to use from many
    threads.

    Args:
        url: the speculative server's.
        plain_url: a server of the same model that decodes plainly. Without one, acceptance is
            observed and the policy asked, but every request goes to ``url``.
        profile: what ``autospec tune`` measured of the two, or its path.
        policy: a shipped policy's name, a path, ``module:Class`` or an object with ``decide``. By
            default the one beside the profile, else ``throughput``; without a profile, ``fixed``.
        depth: drafting depth of the speculative server, where it is not the profile's.
        engine_switches: the speculative server switches by itself (``autospec serve``). The client
            then decides nothing and routes only around a server that is down.
        api_key: sent to both servers as a bearer token, in place of any other.
        openai_details: ask OpenAI endpoints for acceptance, and take it out of the answers again.
        waits: how long a server is waited for when there is another one.
        transport: sends the requests; by default httpx's own, made from the options for it.
        options: other options of ``httpx.Client``, such as ``headers``, ``timeout``, ``verify`` and
            ``proxy``. Proxies are not taken from the environment.

    Raises:
        InputError: an address, the profile or the policy cannot be used.
    """

    def __init__(
        self,
        url: str,
        plain_url: str | None = None,
        *,
        profile: ProfileLike | None = None,
        policy: PolicyLike | None = None,
        depth: int | None = None,
        engine_switches: bool = False,
        api_key: str | None = None,
        openai_details: bool = True,
        waits: Waits = Waits(),  # noqa: B008  # frozen
        transport: httpx.BaseTransport | None = None,
        **options: Any,
    ) -> None:
        self._core = _core(
            url,
            plain_url,
            profile=profile,
            policy=policy,
            depth=depth,
            engine_switches=engine_switches,
            api_key=api_key,
            openai_details=openai_details,
            waits=waits,
        )
        sending, rest = _split(options)
        inner = transport or pools.transport(sending)
        super().__init__(
            transport=RoutingTransport(inner, self._core),
            base_url=self._core.servers.base,
            **rest,
        )

    def generate(
        self,
        text: str | None = None,
        *,
        messages: Messages | None = None,
        input_ids: Sequence[int] | None = None,
        sampling_params: Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> Generation:
        """One answer of SGLang's own ``/generate``.

        Args:
            text: the prompt, or
            messages: a conversation, rendered by the server as for a chat completion, or
            input_ids: the prompt's tokens.
            sampling_params: SGLang's, such as ``max_new_tokens`` and ``temperature``.
            extra: other members of the request.

        Raises:
            InputError: not exactly one prompt was given.
            RequestError: no server answered, or the request was refused or given up.
            WireError: the answer is none of SGLang's.
        """
        ids = input_ids if messages is None else self._render(messages, text, input_ids)
        body = native.make_body(text, ids, sampling_params, extra, stream=False)
        return native.generation_of(self.post(native.GENERATE, json=body))

    def stream_generate(
        self,
        text: str | None = None,
        *,
        messages: Messages | None = None,
        input_ids: Sequence[int] | None = None,
        sampling_params: Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> Iterator[Generation]:
        """The same as a stream: each item has all that there is of the answer so far."""
        ids = input_ids if messages is None else self._render(messages, text, input_ids)
        body = native.make_body(text, ids, sampling_params, extra, stream=True)
        with self.stream("POST", native.GENERATE, json=body) as response:
            if response.status_code != 200:
                response.read()
                native.generation_of(response)
            for line in response.iter_lines():
                if (event := native.event_of(line, response)) is not None:
                    yield event

    def _render(
        self, messages: Messages, text: str | None, input_ids: Sequence[int] | None
    ) -> list[int]:
        body = native.render_body(messages, text, input_ids)
        return native.token_ids_of(self.post(native.TOKENIZE, json=body))


class AsyncClient(_Steered, httpx.AsyncClient):
    """The same for ``openai.AsyncOpenAI``, within one event loop; arguments as of ``Client``."""

    def __init__(
        self,
        url: str,
        plain_url: str | None = None,
        *,
        profile: ProfileLike | None = None,
        policy: PolicyLike | None = None,
        depth: int | None = None,
        engine_switches: bool = False,
        api_key: str | None = None,
        openai_details: bool = True,
        waits: Waits = Waits(),  # noqa: B008  # frozen
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Any,
    ) -> None:
        self._core = _core(
            url,
            plain_url,
            profile=profile,
            policy=policy,
            depth=depth,
            engine_switches=engine_switches,
            api_key=api_key,
            openai_details=openai_details,
            waits=waits,
        )
        sending, rest = _split(options)
        inner = transport or pools.async_transport(sending)
        super().__init__(
            transport=AsyncRoutingTransport(inner, self._core),
            base_url=self._core.servers.base,
            **rest,
        )

    async def generate(
        self,
        text: str | None = None,
        *,
        messages: Messages | None = None,
        input_ids: Sequence[int] | None = None,
        sampling_params: Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> Generation:
        """As ``Client.generate``."""
        ids = input_ids if messages is None else await self._render(messages, text, input_ids)
        body = native.make_body(text, ids, sampling_params, extra, stream=False)
        return native.generation_of(await self.post(native.GENERATE, json=body))

    async def stream_generate(
        self,
        text: str | None = None,
        *,
        messages: Messages | None = None,
        input_ids: Sequence[int] | None = None,
        sampling_params: Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> AsyncIterator[Generation]:
        """As ``Client.stream_generate``."""
        ids = input_ids if messages is None else await self._render(messages, text, input_ids)
        body = native.make_body(text, ids, sampling_params, extra, stream=True)
        async with self.stream("POST", native.GENERATE, json=body) as response:
            if response.status_code != 200:
                await response.aread()
                native.generation_of(response)
            async for line in response.aiter_lines():
                if (event := native.event_of(line, response)) is not None:
                    yield event

    async def _render(
        self, messages: Messages, text: str | None, input_ids: Sequence[int] | None
    ) -> list[int]:
        body = native.render_body(messages, text, input_ids)
        return native.token_ids_of(await self.post(native.TOKENIZE, json=body))
