"""A path prefix: the server below a path of a host that it shares with others (`server.prefix`)."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class StripPrefix:
    """Takes the prefix from the paths of requests, whether the proxy has left it there or not."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._inner = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on with the path that the server itself knows."""
        if scope["type"] == "http":
            path = scope["path"]
            if path == self._prefix or path.startswith(f"{self._prefix}/"):
                scope = {**scope, "path": path.removeprefix(self._prefix) or "/"}
        await self._inner(scope, receive, send)


class AddPrefix:
    """Gives paths their prefix again, and says so, as frameworks want it: links then begin with the prefix."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._inner = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on with `root_path`."""
        if scope["type"] == "http":
            scope = {**scope, "root_path": self._prefix, "path": self._prefix + scope["path"]}
        await self._inner(scope, receive, send)
