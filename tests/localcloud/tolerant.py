"""`pb`: modal's messages, whose makers drop fields this modal version does not know.

One server then serves several versions of the client. Reading an unknown field still
fails loudly: only what we send is forgiven.
"""
from modal_proto import api_pb2


def _forgiving(message):
    "A maker of `message` that ignores unknown fields; nested names stay."
    shape = message.DESCRIPTOR
    known = set(shape.fields_by_name)
    def make(**fields):
        return message(**{name: fields[name] for name in fields.keys() & known})
    for name in (*shape.nested_types_by_name, *shape.enum_values_by_name):
        inner = getattr(message, name)
        setattr(make, name, _forgiving(inner) if isinstance(inner, type) else inner)
    return make


class _Tolerant:
    def __getattr__(self, name):
        found = getattr(api_pb2, name)
        made = _forgiving(found) if isinstance(found, type) else found
        setattr(self, name, made)
        return made


pb = _Tolerant()
Result = pb.GenericResult
