select p.scope, p.upto_handle, p.seen, count(f.scope) as done
from reach p
left join flipped f on f.scope = p.scope
group by p.scope, p.upto_handle, p.seen
