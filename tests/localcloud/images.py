"""Images: never built, but read, to know what a container may import.

The container is this machine's Python. So an image that asks for another minor version
is refused, and packages that its `pip install` lines do not lead to are hidden.
"""
import functools
import hashlib
import importlib.metadata as metadata
import re
import shlex
import sys

from .tolerant import Result, pb

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
ALWAYS = ("modal", "pip", "setuptools", "wheel", "uv")
WITH_VALUE = {"--python", "--index-url", "--extra-index-url", "--find-links",
              "--prerelease", "--requirements", "--requirement", "-r"}


def commands(images, id):
    "The Dockerfile lines of an image and of the images it builds on."
    while id in images:
        yield from images[id].dockerfile_commands
        id = images[id].base_images[0].image_id if images[id].base_images else ""


def wrong_python(image):
    "Why this image cannot run here, or None."
    for line in image.dockerfile_commands:
        found = re.match(r"FROM python:(\d+\.\d+)", line)
        if found and found[1] != HERE:
            return f"image wants Python {found[1]}, localcloud can only run {HERE}"


def requested(images, id):
    "Distributions an image asks pip for; None if that cannot be told."
    names = []
    for line in commands(images, id):
        found = re.search(r"\bpip install (.*)", line)
        if not found or "--upgrade" in line: continue
        if "--requirement" in line or " -r " in line: return None
        words = iter(shlex.split(found[1].replace("$(command -v python)", "python")))
        for word in words:
            if word in WITH_VALUE: next(words, None)
            elif not word.startswith("-"):
                names.append(re.split(r"[\[<>=!~ ;@]", word)[0])
    return names


def variables(images, id):
    "What `Image.env` sets."
    lines = [line[4:].split("=", 1) for line in commands(images, id)
             if line.startswith("ENV ") and "=" in line]
    return {name: "".join(shlex.split(value)[:1]) for name, value in reversed(lines)}


def normal(name): return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def requirements(name):
    try: lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError: return ()
    return tuple(normal(re.split(r"[\[<>=!~ ;(]", line)[0])
                 for line in lines if "extra ==" not in line)


@functools.cache
def installed(): return metadata.packages_distributions()


def hidden_modules(wanted):
    "Modules that are installed here, but that `pip install wanted` would not bring."
    seen, todo = set(), [normal(name) for name in (*wanted, *ALWAYS)]
    while todo:
        name = todo.pop()
        if name in seen: continue
        seen.add(name)
        todo += requirements(name)
    return {module for module, owners in installed().items()
            if not module.startswith("_") and not {normal(o) for o in owners} & seen}


class ImageRPCs:
    async def ImageGetOrCreate(self, request):
        cloud = self.cloud
        key = request.image.SerializeToString(deterministic=True)
        key = hashlib.sha256(key).hexdigest()
        if key in cloud.image_ids and not request.force_build:
            return pb.ImageGetOrCreateResponse(
                image_id=cloud.image_ids[key], metadata=self._metadata(),
                result=Result(status=Result.GENERIC_STATUS_SUCCESS))
        id = cloud.new_id("im")
        cloud.images[id] = request.image
        if not wrong_python(request.image): cloud.image_ids[key] = id
        return pb.ImageGetOrCreateResponse(image_id=id)

    async def ImageJoinStreaming(self, request):
        image = self.cloud.get(self.cloud.images, request.image_id, "Image")
        logs = [pb.TaskLogs(data=f"[localcloud, not built] {line}\n",
                            file_descriptor=pb.FILE_DESCRIPTOR_INFO)
                for line in image.dockerfile_commands]
        why = wrong_python(image)
        status = Result.GENERIC_STATUS_FAILURE if why else Result.GENERIC_STATUS_SUCCESS
        yield pb.ImageJoinStreamingResponse(
            result=Result(status=status, exception=why or ""), task_logs=logs, eof=True,
            entry_id="1-0", metadata=self._metadata())

    def _metadata(self):
        return pb.ImageMetadata(image_builder_version="2025.06",
                                python_version_info=sys.version)
