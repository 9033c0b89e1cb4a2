"""Waits until somebody executes a program of this name: wait_for_exec.py NAME"""

import asyncio
import sys

from taskdiag import Row, aio


async def exec_of(name: str) -> Row:
    """The event of the first exec of a program of this name."""
    async for event in aio.events(["exec"]):
        if event.comm == name:
            return event
    raise AssertionError("events do not end")


async def main() -> None:
    """Prints who executed it."""
    event = await exec_of(sys.argv[1])
    print(f"pid {event.pid}, started by {event.ppid}, user {event.euid}: {event.filename}")


if __name__ == "__main__":
    asyncio.run(main())
