"""A server of archives on this machine."""

import hashlib
import http.server
import io
import re
import tarfile

from xaibench.data.disk.downloads import Archive


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files``; ``answers`` says per request how: a number of bytes after which it is cut, or a function."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.answers, self.ranges = {}, iter(()), []

    def offer(self, name, members):
        """Offer a tar archive of ``{name: content}``."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        self.files[name] = content = packed.getvalue()
        return Archive(f"http://127.0.0.1:{self.server_port}/{name}", hashlib.md5(content).hexdigest(), len(content))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        how = next(self.server.answers, None)
        if callable(how):
            how(self)
        elif self.path[1:] not in self.server.files:
            self.send_error(404)
        else:
            self.send(int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0, how)

    def send(self, start, most=None):
        """Send the file from a byte on, of which only as many bytes as stated arrive."""
        content = self.server.files[self.path[1:]]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : None if most is None else start + most])

    def log_message(self, *arguments):
        pass
