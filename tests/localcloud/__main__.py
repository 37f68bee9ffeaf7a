"""`python -m localcloud --root FOLDER`: a cloud for a person; prints what to export."""
import argparse
import asyncio
import contextlib
import shlex

from .server import RPCS, LocalCloud


async def serve(args):
    settings = dict(strict_image=not args.loose, port=args.port)
    async with LocalCloud(args.root, **settings) as cloud:
        for name, value in cloud.env.items():
            print(f"export {name}={shlex.quote(value)}", flush=True)
        print(f"# {len(RPCS)} RPCs; Ctrl-C stops it", flush=True)
        await asyncio.Event().wait()


parser = argparse.ArgumentParser(prog="python -m localcloud", description=__doc__)
parser.add_argument("--root", required=True, help="folder for all that it keeps")
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--loose", action="store_true",
                    help="let containers import packages that their image lacks")
with contextlib.suppress(KeyboardInterrupt): asyncio.run(serve(parser.parse_args()))
