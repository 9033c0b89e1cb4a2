#!/usr/bin/python3
"""Makes the pictures of README from the real thing: `top` at work as SVG, parts of the page of `report`
as PNG. They show some programs in a pid namespace of their own. Takes the program. Needs root.
"""

import fcntl
import html
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

import pyte
from PIL import Image, ImageChops

PICTURES = "docs/pictures"
ROWS, COLUMNS = 24, 100
SECONDS = 40

# What runs: a compilation, a calculation, a compression, a server, and some who wait.
SCENE = r"""
as() { setpriv --reuid "$1" --clear-groups "${@:2}" & }
as games bash -c 'while :; do seq 1 6000 | sed "s/.*/int f& (int x) { return x * & % 7; }/" >work.c; gcc -O2 -c work.c; done'
as nobody perl -e '@a = map { rand } 1 .. 6e5; while (1) { @b = sort { $a <=> $b } @a; sleep 1 }'
as backup bash -c 'while :; do head -c 200M /dev/urandom | gzip -1 >archive.gz; sleep 3; done'
as www-data python3 -m http.server --bind 127.0.0.1 8765 >log 2>&1
for n in 1 2 3; do as list bash -c 'while :; do sleep 7; done' worker; done
wait
"""

PALETTE = {
    "default": "#d4d4d4", "black": "#3b3b3b", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b",
    "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#e6e6e6",
}
GROUND = "#1e1e1e"


def colour(name: str, default: str) -> str:
    if name == "default":
        return default
    return PALETTE.get(name.removeprefix("bright"), f"#{name}")


def svg(screen: pyte.Screen, about: str) -> str:
    """The screen as a picture: one text element for each run of characters that look the same."""
    wide, high = 8.4, 18
    size = f'{screen.columns * wide + 16:.0f} {screen.lines * high + 16}'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="monospace" font-size="14">\n'
        f'<desc>{about}</desc><rect width="100%" height="100%" rx="6" fill="{GROUND}"/>'
    ]
    for row in range(screen.lines):
        runs: list[tuple[int, str, tuple[str, str, bool]]] = []
        for column in range(screen.columns):
            cell = screen.buffer[row][column]
            ends = colour(cell.fg, PALETTE["default"]), colour(cell.bg, GROUND)
            look = (*(ends[::-1] if cell.reverse else ends), cell.bold)
            if runs and runs[-1][2] == look:
                runs[-1] = (runs[-1][0], runs[-1][1] + cell.data, look)
            else:
                runs.append((column, cell.data, look))
        for column, text, (front, back, bold) in runs:
            x, y = 8 + column * wide, 8 + row * high
            if back != GROUND:
                parts.append(f'<rect x="{x:.1f}" y="{y}" width="{len(text) * wide:.1f}" height="{high}" fill="{back}"/>')
            if text.strip():
                weight = ' font-weight="bold"' if bold else ""
                parts.append(
                    f'<text x="{x:.1f}" y="{y + 14}" fill="{front}"{weight} xml:space="preserve"'
                    f' textLength="{len(text) * wide:.1f}">{html.escape(text)}</text>'
                )
    return "\n".join([*parts, "</svg>\n"])


def terminal(command: list[str], seconds: float) -> pyte.Screen:
    """What a command shows on a terminal after some time."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", LINES=str(ROWS), COLUMNS=str(COLUMNS))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            stream.feed(os.read(terminal, 1 << 16))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return screen


def page(picture: str, options: list[str], style: str) -> None:
    """The page of a report with more CSS, as PNG of few colours."""
    subprocess.run(["taskdiag", "report", *options, "-o", "page.html"], check=True, capture_output=True)
    with open("page.html", encoding="utf-8") as whole, open("part.html", "w", encoding="utf-8") as part:
        part.write(whole.read() + f"<style>{style}</style>")
    command = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1180,1000"]
    subprocess.run([*command, f"--screenshot={picture}", f"file://{os.getcwd()}/part.html"], check=True, capture_output=True)
    image = Image.open(picture).convert("RGB")
    _, _, _, bottom = ImageChops.difference(image, Image.new("RGB", image.size, image.getpixel((0, 0)))).getbbox()
    image.crop((0, 0, image.width, min(bottom + 16, image.height))).quantize(48).save(picture, optimize=True)


def inside() -> None:
    """In the namespace: starts the scene, and makes the pictures."""
    scene = subprocess.Popen(["bash", "-c", SCENE], stderr=subprocess.DEVNULL)
    recorder = subprocess.Popen(["taskdiag", "record", "--every", "1s", "/mnt/day"], stderr=subprocess.DEVNULL)
    time.sleep(SECONDS)
    with open("top.svg", "w", encoding="utf-8") as file:
        version = subprocess.run(["taskdiag", "--version"], check=True, capture_output=True, text=True).stdout
        file.write(svg(terminal(["taskdiag", "top"], 8), version.splitlines()[0]))
    recorder.send_signal(signal.SIGINT)
    recorder.wait()
    # Without what names this machine's kernel.
    page("report.png", ["--history", "/mnt/day"], "h1, #about, footer, section:not(#processor) { display: none }")
    page("memory.png", [], "h1, #about, footer, section:not(#present), #account { display: none } .beside { display: block }")
    scene.kill()


def main() -> None:
    if len(sys.argv) < 2:
        inside()
        return
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o1777)
        os.symlink(os.path.abspath(sys.argv[1]), os.path.join(directory, "taskdiag"))
        shutil.copy(__file__, os.path.join(directory, "pictures.py"))
        command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "sh", "-c"]
        # The page has the whole path.
        command += ["hostname example && mount -t tmpfs day /mnt && exec python3 pictures.py"]
        environment = {"PATH": f"{directory}:/usr/bin:/bin:/usr/sbin", "HOME": directory}
        subprocess.run(command, check=True, cwd=directory, env=environment)
        for name in ("top.svg", "report.png", "memory.png"):
            shutil.copy(os.path.join(directory, name), PICTURES)


main()
