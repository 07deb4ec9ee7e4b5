"""The page in a real browser: sorting, tooltips, and that it fits a phone and can be read there."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from prunecast.codesign import predict
from prunecast.report.page import render_page
from prunecast.report.pictures import MeasuredPoint

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]

DRIVER = """<script>
const table = document.querySelector("#summary table"), column = 3, said = [];
const values = () => [...table.tBodies[0].rows].map(row => row.cells[column].textContent).join(" ");
for (let turn = 0; turn < 2; turn++) {
  table.tHead.rows[0].cells[column].querySelector("button").click();
  said.push(table.tHead.rows[0].cells[column].getAttribute("aria-sort") + " " + values());
}
const target = document.querySelector("svg [data-tip]"), tip = document.getElementById("tip");
const place = target.getBoundingClientRect();
const move = (on, away) => on.dispatchEvent(new PointerEvent("pointermove",
  {bubbles: true, clientX: place.left - away, clientY: place.top}));
move(target, 0);
said.push(!tip.hidden && tip.textContent === target.dataset.tip);
move(document.body, 0);
said.push(tip.hidden);
move(target.closest("svg"), 6);
said.push(!tip.hidden);
const outer = tip.getBoundingClientRect();
said.push(outer.left >= 0 && outer.right <= innerWidth);
document.title = "said: " + said.join("|");
</script></body>"""

# A window is not narrower than 500 pixels, a frame is. What is seen inside goes to the page around it.
INSIDE = """<script>
document.querySelectorAll("details").forEach(part => part.open = true);
const small = [], cut = [];
for (const picture of document.querySelectorAll("svg")) {
  const frame = picture.getBoundingClientRect(), scale = frame.width / picture.viewBox.baseVal.width;
  for (const text of picture.querySelectorAll("text")) {
    const box = text.getBoundingClientRect(), size = scale * parseFloat(getComputedStyle(text).fontSize);
    if (size < 7.5) small.push(text.textContent);
    if (box.left < frame.left - 1 || box.right > frame.right + 1) cut.push(text.textContent);
  }
}
const beyond = [...document.querySelectorAll("body *")].filter(each =>
  !each.closest(".wide") && each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML);
parent.postMessage({width: innerWidth, scroll: document.documentElement.scrollWidth,
  small, cut, beyond, texts: document.querySelectorAll("svg text").length}, "*");
</script></body>"""
AROUND = """<!DOCTYPE html><body><iframe src="page.html" width="WIDTH" height="900" style="border:0"></iframe>
<script>
addEventListener("message", event => { document.title = "said: " + JSON.stringify(event.data); });
</script>
"""


@pytest.fixture(scope="module")
def page():
    rng = np.random.default_rng(0)
    weights = {f"a.long.name.of.a.layer.{m}": rng.standard_normal((m, 256)) for m in (1024, 128, 4096)}
    table = predict(weights, gpu="h200-sxm", tokens=4096, dtype="fp16")
    measured = [MeasuredPoint("case", row.kernel, 1e-5, 1e-5, 9e-6, 2e-5) for row in table]
    return render_page(table, weights, gpu="h200-sxm", measured=measured)


def told_by(file, folder):
    """What a page says in its title once it has run."""
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    arguments += ["--window-size=1440,900", "--virtual-time-budget=5000", "--dump-dom", file.as_uri()]
    done = subprocess.run([CHROMIUM, *arguments], capture_output=True, text=True, timeout=1800, check=True)
    said = re.search("<title>said: (.*)</title>", done.stdout)
    assert said is not None
    return said[1]


def test_sorting_and_tooltips(page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page.replace("</body>", DRIVER), encoding="utf-8")
    rising, falling, *rest = told_by(file, tmp_path).split("|")
    assert rest == ["true"] * 4
    way, *values = rising.split()
    assert way == "ascending"
    assert [float(value) for value in values] == sorted(float(value) for value in values)
    assert falling.split() == ["descending", *values[::-1]]


@pytest.mark.parametrize("width", [360, 400, 900, 1440])
def test_it_fits_the_screen_and_can_be_read(page, tmp_path, width):
    (tmp_path / "page.html").write_text(page.replace("</body>", INSIDE), encoding="utf-8")
    around = tmp_path / "around.html"
    around.write_text(AROUND.replace("WIDTH", str(width)), encoding="utf-8")
    told = json.loads(told_by(around, tmp_path))
    assert told["width"] == width
    assert told["texts"] > 50
    assert told["scroll"] <= width
    assert (told["beyond"], told["small"], told["cut"]) == ([], [], [])
