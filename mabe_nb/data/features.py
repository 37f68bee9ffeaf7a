# TEMP stand-in
from .blocks import fill_gaps
from .bodies import *
from typing import NamedTuple
import numpy as np, types
S=types.ModuleType('S'); exec(open('/tmp/boss/social.py').read(),S.__dict__)
class Features(NamedTuple):
    values: object; names: tuple; units: tuple
def compute(rec,name,pair=None,parts=None,backend="numpy"):
    o=mouse_order(rec,pair); xy=rec.xy[:,o]
    if xy.shape[1]==1: xy=np.concatenate([xy,np.full_like(xy,np.nan)],1)
    s,u=scale(rec); pts=body_points(rec)
    names=other_parts(parts or rec.parts,used=("nose","head","body_center","tail_base"))
    mine={plain_part(p):i for i,p in enumerate(rec.parts)}
    idx=list(pts.values())+[(mine[n],) if n in mine else () for n in names]
    x=xy[:,:2].astype(np.float64)*s
    with np.errstate(all='ignore'):
        f=fill_gaps(x,round(S.GAP_MS*rec.fps/1000)); x,f=derive(x,idx),derive(f,idx)
        miss=np.isnan(f[...,0])*.5+np.isnan(x[...,0])*.5
        t=S.social(S.Animals(f[:,:,:3],f[:,:,3:],miss,names,rec.fps,u))
    t=[c for c in t if not c.name.endswith(('8000','16000','32000'))]
    return Features(np.stack([c.values for c in t],1).astype(np.float32),tuple(c.name for c in t),tuple(c.unit for c in t))
