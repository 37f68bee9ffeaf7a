"""What Modal bills a container, by its pricing page: the greater of request and use.

Without a limit a container may use 16 cores more than it asked for, and all the memory of
its machine. With one, its processor is throttled and it is killed beyond its memory.
"""
from dataclasses import dataclass

FREE_CORES, MACHINE = 16.0, 336.0 # GiB


@dataclass
class Resources:
    cpu: float # cores requested
    memory: float # GiB requested
    cpu_limit: float = 0.0 # 0: none
    memory_limit: float = 0.0

    def used(self, cpu, memory):
        "Cores and GiB that a container gets which would use so much; is it killed?"
        most = self.memory_limit or MACHINE
        return (min(cpu, self.cpu_limit or self.cpu + FREE_CORES), min(memory, most),
                memory > most)

    def billed(self, cpu, memory):
        "Cores and GiB on its bill."
        cpu, memory, _ = self.used(cpu, memory)
        return max(cpu, self.cpu), max(memory, self.memory)


def resources(definition):
    "Of a function, in cores and GiB."
    r = definition.resources
    return Resources(r.milli_cpu / 1000, r.memory_mb / 1024, r.milli_cpu_max / 1000,
                     r.memory_mb_max / 1024)
