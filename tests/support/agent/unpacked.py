"""Write the agent's files into a folder, with the same paths as on a host."""

from __future__ import annotations

from pathlib import Path

from tfdeploy.transport.agent.archive import agent_files


def write_agent_files(folder: str | Path) -> None:
    for relative_path, content in agent_files():
        path = Path(folder) / relative_path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
