"""One container, from its folder to its last word.

It is a subprocess that runs modal's own entry point, as on Modal.
"""
import asyncio
import codecs
import contextlib
import os
import shutil
import sys
import time
from pathlib import Path

from . import images, meter, namespace
from .storage import unpack_mounts
from .tolerant import pb


async def run_container(cloud, container, definition):
    "Start it, follow it, clean up after it, and tell the scheduler."
    container.log(task_state=pb.TASK_STATE_CREATED)
    if cloud.faults.start_delay:
        container.log(task_state=pb.TASK_STATE_QUEUED)
        await asyncio.sleep(cloud.faults.start_delay)
    code = -1
    async with contextlib.AsyncExitStack() as cleanup:
        cleanup.push_async_callback(asyncio.to_thread, shutil.rmtree, container.folder,
                                    ignore_errors=True)
        try:
            if not container.stopping:
                code = await _follow(cloud, container, definition, cleanup)
        except OSError as e:
            container.note(f"localcloud: the container could not start: {e}")
        for copy in container.copies: # in turn, so that none is read while it goes away
            if cloud.faults.lose_uncommitted and code: await copy.volume.alone(int)
            else: await cloud.try_commit(container, copy)
        container.log(task_state=pb.TASK_STATE_COMPLETED)
    cloud.ended(container, code)


async def _follow(cloud, container, definition, cleanup):
    "Run the process to its end; returns its exit code."
    root = container.folder/"root"
    root.mkdir(parents=True)
    await asyncio.to_thread(unpack_mounts, cloud, definition, root)
    for number, mount in enumerate(definition.volume_mounts):
        volume = cloud.volume(mount.volume_id)
        container.copies.append(await cloud.copy(
            volume, container.folder/f"vol{number}", mount.mount_path))
    socket = await cloud.listen_to(container, cleanup)
    env = await asyncio.to_thread(_environment, cloud, container, definition, root, socket)
    command = [sys.executable, "-m", "modal._container_entrypoint"]
    if cloud.faults.crash_on_start > 0:
        cloud.faults.crash_on_start -= 1
        command = ["sh", "-c", "kill -9 $$"]
    if container.copies and cloud.namespaces:
        command = namespace.command(container.copies, command)
    elif container.copies:
        cleanup.callback(namespace.remove_links, namespace.make_links(container.copies))
    container.process = await asyncio.create_subprocess_exec(
        *command, env=env, cwd=root, start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE)
    commits = asyncio.ensure_future(_background_commits(cloud, container))
    watching = asyncio.ensure_future(meter.watch(container))
    cleanup.callback(watching.cancel)
    pipes = ((container.process.stdout, pb.FILE_DESCRIPTOR_STDOUT),
             (container.process.stderr, pb.FILE_DESCRIPTOR_STDERR))
    await asyncio.gather(*(_keep_output(cloud, container, *pipe) for pipe in pipes))
    code = await container.process.wait()
    await commits
    return code


def _environment(cloud, container, definition, root, socket):
    arguments = container.folder/"args.bin"
    app = container.function.app
    arguments.write_bytes(pb.ContainerArguments(
        task_id=container.id, function_id=container.function.id, app_id=app.id,
        function_def=definition, environment_name="main",
        app_layout=cloud.layout(app)).SerializeToString())
    path = (os.path.dirname(sys.executable), os.environ["PATH"], "/usr/sbin", "/sbin")
    env = {"PATH": os.pathsep.join(path), "HOME": str(container.folder), "LANG": "C.UTF-8",
           "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(root), "CUDA_VISIBLE_DEVICES": "",
           "MPLBACKEND": "agg", "MODAL_IS_REMOTE": "1", "MODAL_ENVIRONMENT": "main",
           "MODAL_SERVER_URL": f"unix://{socket}", "MODAL_TASK_ID": container.id,
           "MODAL_IMAGE_ID": definition.image_id, "MODAL_DISABLE_API_PROXY": "1",
           "MODAL_CONTAINER_ARGUMENTS_PATH": str(arguments), "LC_GPU": container.gpu,
           "LC_ROOT": str(root), "LC_NEWROOT": str(container.folder/"newroot")}
    if cloud.strict_image: _police(cloud, container, definition, env)
    for secret in definition.secret_ids: env.update(cloud.secrets.get(secret, {}))
    return images.variables(cloud.images, definition.image_id) | env


def _police(cloud, container, definition, env):
    "Let `strict.py` hide the packages that the image does not ask for."
    wanted = images.requested(cloud.images, definition.image_id)
    if wanted is None: return
    site = container.folder/"site"
    site.mkdir()
    shutil.copyfile(Path(__file__).with_name("strict.py"), site/"sitecustomize.py")
    (site/"hidden.txt").write_text("\n".join(sorted(images.hidden_modules(wanted))))
    env["PYTHONPATH"] = f"{site}{os.pathsep}{env['PYTHONPATH']}"


async def _keep_output(cloud, container, stream, descriptor):
    "What the container prints belongs to the call it works on."
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := await stream.read(65536):
        input = container.input
        if cloud.faults.lose_logs: continue
        container.log(data=decoder.decode(chunk), file_descriptor=descriptor,
                      function_call_id=input.call.id if input else "",
                      input_id=input.id if input else "")


async def _background_commits(cloud, container):
    "The knob is read often, so that turning it has an effect at once."
    last = time.time()
    while container.process.returncode is None:
        await asyncio.sleep(0.1)
        if time.time() - last < cloud.faults.background_commit: continue
        for copy in container.copies: await cloud.try_commit(container, copy)
        last = time.time()
