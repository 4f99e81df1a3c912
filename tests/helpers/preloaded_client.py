"""Run Python in a process of `preloaded_server.py`: `preloaded_client.py DIRECTORY PYTHON ARGUMENT...`.

The client has the exit code of that process and forwards signals to it. It becomes PYTHON itself if the server refuses
the arguments or has ended. It imports little, because it starts before every such process.
"""

import json
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(directory: str, python: str, *arguments: str) -> int:
    """Return the exit code, or end by the signal that ended the other process."""
    reply = b"refused"
    with socket.socket(socket.AF_UNIX) as connection:
        if connection.connect_ex(f"{directory}/socket") == 0:
            reply = run(connection, arguments)
    if reply == b"refused":
        os.execv(python, [python, *arguments])
    code = int(reply or 70)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def run(connection: socket.socket, arguments: tuple[str, ...]) -> bytes:
    """Send the request, forward signals, and return the reply; nothing if the server has ended."""
    request = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
    text = json.dumps(request).encode()
    socket.send_fds(connection, [len(text).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(text)
    for number in FORWARDED:
        signal.signal(number, lambda received, _: connection.sendall(bytes([received])))
    return connection.recv(16)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
