"""The app: every route of the list behind the guard, every failure one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from taut.serve.guard import Door, Guard
from taut.serve.parameters import Asked, asked
from taut.serve.refusals import Refused, refusal, refused_of
from taut.serve.routes import PAGES, ROUTES, Call, House, Route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp


def make_app(house: House, door: Door, say: Callable[[str], None] = lambda line: None) -> ASGIApp:
    """The app; ``say`` gets what nobody foresaw."""
    from starlette.applications import Starlette
    from starlette.routing import Route as Path

    routes = [Path(one.path, _endpoint(one, house, say), methods=[one.method]) for one in ROUTES]
    for path in routes:
        path.methods = (path.methods or set()) - {"HEAD"}
    app = Starlette(routes=routes, exception_handlers={404: _nowhere, 405: _not_so})
    app.router.redirect_slashes = False  # it would build an address from what the client calls this server
    return Guard(app, door)


def _endpoint(route: Route, house: House, say: Callable[[str], None]) -> Callable[[Request], object]:
    async def answer(request: Request) -> Response:
        try:
            found = Asked({}) if PAGES[route.path] else asked(route.takes, request.scope["query_string"])
            return await route.handler(Call(house, request, found))
        except Exception as error:
            return refusal(refused_of(error, say))

    return answer


async def _nowhere(request: Request, error: Exception) -> Response:
    return refusal(Refused(404, "nothing is at this address; /api/openapi.json lists what is"))


async def _not_so(request: Request, error: Exception) -> Response:
    return refusal(Refused(405, "this address takes another method", {"allow": "GET, POST"}))
