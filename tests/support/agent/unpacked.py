"""Write the agent's files into a folder, as they are on a host."""

from __future__ import annotations

from pathlib import Path

from tfdeploy.transport.agent.archive import agent_files


def unpack_agent(folder: str | Path) -> None:
    for name, content in agent_files():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
