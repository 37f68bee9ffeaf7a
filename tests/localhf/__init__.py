"A stand-in for Hugging Face on loopback; see README.md."
from .server import LocalHub

__all__ = ["LocalHub"]
