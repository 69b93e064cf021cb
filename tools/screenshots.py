"""The pictures in docs/images/: the demo plays, and a browser looks at ten of its pages (`make screenshots`).

The demo's app is a real `tidemill up`. Beside what the demo does, a schedule waits for more than the demo has, and a
rule watches the quarantine: pages show most when something needs a person. A driver is killed, so that a run has two
attempts.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
from playwright.sync_api import Page, sync_playwright

import tidemill as tm
from tidemill.demo.demo import run_demo
from tidemill.mill.mill import open_project
from tools.small_png import write_png

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
WIDTH: Final = 1240
HEIGHT: Final = 820
MOST_BYTES: Final = 150_000
_CHROMIUM: Final = "/usr/bin/chromium"
_READ_PIXELS: Final = """async (source) => {
  const image = new Image();
  image.src = source;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let place = 0; place < bytes.length; place += 32768) {
    text += String.fromCharCode(...bytes.subarray(place, place + 32768));
  }
  return btoa(text);
}"""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: the name of its file, and the path of its page in a project."""

    name: str
    find: Callable[[tm.Mill], str]
    dark: bool = False


PICTURES: Final = (
    Picture("overview", lambda _: "/"),
    Picture("overview-dark", lambda _: "/", dark=True),
    Picture("flow", lambda _: "/flow?around=fileset:default.flights_weather"),
    Picture("inbox", lambda _: "/inboxes/default.flights_raw"),
    Picture("dataset", lambda _: "/datasets/default.flights"),
    Picture("schedule", lambda _: "/schedules/default.new_york.recheck"),
    Picture("run", lambda mill: f"/runs/{_find_retried(mill)}"),
    Picture("why", lambda mill: f"/why/{mill.jobs.list(schedule='new_york.recheck')[0].job_id}"),
    Picture("watermark", lambda _: "/watermarks/default.flights"),
    Picture("alerts", lambda _: "/alerts"),
)
"""All pictures."""


@dataclass
class _Studio:
    """Prepares the demo's project at its begin, and takes the pictures at its end."""

    folder: Path | None = None
    link: str = ""
    lines: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        """Echo a line of the demo. The link names the server; the project is prepared as soon as it is there."""
        click.echo(line)
        if line.startswith("the project is in "):
            self.folder = Path(line.split()[4].rstrip(";"))
        if " ready " in line and self.folder is not None:
            with open_project(self.folder) as mill:
                _prepare(mill)
        if "/login?code=" in line:
            self.link = line.rpartition(" ")[2].strip()

    def take(self) -> None:
        """Take all pictures."""
        assert self.folder is not None, "the demo has printed its folder"
        with open_project(self.folder) as mill, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
            context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
            page, site = context.new_page(), "http://" + urlsplit(self.link).netloc
            page.goto(self.link)
            for picture in PICTURES:
                page.emulate_media(color_scheme="dark" if picture.dark else "light")
                page.goto(site + picture.find(mill))
                page.locator(".live", has_text="live").wait_for()
                _write(IMAGES / f"{picture.name}.png", page.screenshot(), context.new_page())
            browser.close()


def _find_retried(mill: tm.Mill) -> str:
    """Return a run with a second attempt."""
    return next(run.run_id for run in tm.iterate(mill.runs.list) if run.epoch > 1)


def _prepare(mill: tm.Mill) -> None:
    """Let something need a person: what the demo does not have."""
    enough = tm.AllOf(tm.NewPartitions("default.flights", 500), tm.Refreshed("default.planes"))
    mill.schedules.create(
        "new_york.recheck",
        "new_york.compare",
        trigger=enough,
        constraints=[tm.TimeRange("22:00", "06:00", zone="America/New_York"), tm.SinceLastRun("10m")],
        description="Compare everything again when much is new",
    )
    mill.alerts.create(
        "bad_flights", tm.Quarantined("default.flights_raw"), description="Files that no program can read"
    )


def _write(path: Path, png: bytes, blank: Page) -> None:
    """Write a picture with fewer colours; a browser decodes the screenshot."""
    source = "data:image/png;base64," + base64.b64encode(png).decode()
    pixels: Any = blank.evaluate(_READ_PIXELS, source)
    blank.close()
    small = write_png(base64.b64decode(pixels), WIDTH, HEIGHT)
    if len(small) > MOST_BYTES:
        sys.exit(f"{path.name} has {len(small):,} bytes: more than {MOST_BYTES:,}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(small)
    click.echo(f"wrote {path.relative_to(Path.cwd())}: {len(small):,} bytes")


@click.command()
@click.option("--days", default=2, show_default=True, help="Days of data that the demo plays.")
def main(days: int) -> None:
    """Play the demo, and write docs/images/."""
    studio = _Studio()
    run_demo(days=days, keep=False, crash=True, echo=studio.hear, ui=True, stay=studio.take)


if __name__ == "__main__":
    main()
