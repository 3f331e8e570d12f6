-- What rejection h counts as: its own code if that is admitted, or the one that is never 'other'.
case
    when {harvest_code} = 'restricted_divergence'
        or exists (select from admitted where admitted.code = {harvest_code})
        then h.code
    else 'other'
end
