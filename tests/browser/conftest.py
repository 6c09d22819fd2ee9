"""A headless Chromium and JupyterLab. `make test-browser` installs what is needed; `make test` passes this folder by."""

import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
START = 60.0  # seconds until a server must answer
ALL_CELLS_DRAWN = '{"windowingMode": "none"}'  # else JupyterLab draws only the cells that are in sight


def pytest_ignore_collect(collection_path, config):
    """Whether a file is left out: all of this folder, unless it was asked for by name."""
    here = Path(__file__).parent
    asked = [Path(argument.split("::")[0]).resolve() for argument in config.args]
    return None if any(path == here or here in path.parents for path in asked) else True


@pytest.fixture(scope="session")
def browser():
    """Chromium, for all tests of the run."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A fresh page with cookies of its own."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(30_000)
    yield context.new_page()
    context.close()


@dataclass(frozen=True)
class Server:
    """A running Jupyter server. root : the folder that it serves."""

    root: Path
    address: str
    token: str

    def url(self, path: str) -> str:
        """The address of a path on this server, with the token."""
        return f"{self.address}/{path}{'&' if '?' in path else '?'}token={self.token}"

    def lab(self, path: str) -> str:
        """JupyterLab with one notebook open, in a workspace that holds nothing else."""
        return self.url(f"lab/workspaces/test/tree/{path}?reset")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="session")
def serve(tmp_path_factory):
    """serve(folder) -> a Server on that folder, with settings of its own; ended after the run."""
    running = []

    def start(root: Path) -> Server:
        home = tmp_path_factory.mktemp("home")
        settings = home / "settings" / "@jupyterlab" / "notebook-extension"
        settings.mkdir(parents=True)
        (settings / "tracker.jupyterlab-settings").write_text(ALL_CELLS_DRAWN)
        config = home / "config" / "labconfig"
        config.mkdir(parents=True)
        (config / "page_config.json").write_text(
            '{"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": true}}'
        )
        port, token = free_port(), secrets.token_hex(8)
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": port,
            "ServerApp.port_retries": 0,
            "ServerApp.open_browser": False,
            "ServerApp.root_dir": root,
            "ServerApp.allow_root": True,
            "IdentityProvider.token": token,
            "LabApp.user_settings_dir": home / "settings",
            "LabApp.workspaces_dir": home / "workspaces",
            "LabApp.news_url": "",
        }
        environment = os.environ | {
            "HOME": str(home),
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
            "IPYTHONDIR": str(home / "ipython"),
        }
        command = [
            sys.executable,
            "-m",
            "jupyterlab",
            *(f"--{key}={value}" for key, value in options.items()),
        ]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log)
        running.append(process)
        server = Server(root, f"http://127.0.0.1:{port}", token)
        deadline = time.monotonic() + START
        while not answers(server.url("api/status")):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"JupyterLab does not start:\n{(home / 'log').read_text()[-3000:]}")
            time.sleep(0.2)
        return server

    yield start
    for process in running:
        process.terminate()  # the server ends its kernels
    for process in running:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
