"""The page's script in a real browser: sorting, and tooltips."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from prunecast.codesign import predict
from prunecast.report import render_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]

DRIVER = """<script>
const table = document.querySelector("#summary table"), column = 2, said = [];
const values = () => [...table.tBodies[0].rows].map(row => row.cells[column].textContent).join(" ");
for (let turn = 0; turn < 2; turn++) {
  table.tHead.rows[0].cells[column].querySelector("button").click();
  said.push(table.tHead.rows[0].cells[column].getAttribute("aria-sort") + " " + values());
}
const target = document.querySelector("[data-tip]"), tip = document.getElementById("tip");
target.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: 5, clientY: 5}));
said.push(!tip.hidden && tip.textContent === target.dataset.tip);
document.body.dispatchEvent(new PointerEvent("pointermove", {bubbles: true}));
said.push(tip.hidden);
said.push(document.documentElement.scrollWidth <= innerWidth);
document.title = "said: " + said.join("|");
</script></body>"""


def test_sorting_tooltips_and_width(tmp_path):
    rng = np.random.default_rng(0)
    weights = {str(m): rng.standard_normal((m, 256)).astype(np.float16) for m in (1024, 128, 4096)}
    table = predict(weights, gpu="h200-sxm", tokens=4096, engine="model", crossovers=False)
    page = render_page(table, weights, gpu="h200-sxm")
    (tmp_path / "page.html").write_text(page.replace("</body>", DRIVER), encoding="utf-8")
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    arguments += ["--window-size=500,800", "--dump-dom", (tmp_path / "page.html").as_uri()]
    done = subprocess.run([CHROMIUM, *arguments], capture_output=True, text=True, timeout=120, check=True)
    said = re.search("<title>said: (.*)</title>", done.stdout)
    assert said is not None
    rising, falling, shown, hidden, fits = said[1].split("|")
    assert (shown, hidden, fits) == ("true", "true", "true")
    way, *values = rising.split()
    assert way == "ascending"
    assert [float(value) for value in values] == sorted(float(value) for value in values)
    assert falling.split() == ["descending", *values[::-1]]
