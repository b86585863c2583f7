"""The core in one minute: birth, mutation, decoding, and one hash on every machine.

python examples/core.py
"""

import time

from germline import Birth, Decoder, Gene, Genome, GenomeFile, policies
from germline.blobs import weights_hash
from germline.files import to_json

# The network of "Deep Neuroevolution": pixels in, one of 18 joystick actions out.
spec = policies.make("dqn", {"actions": 18})
layout = spec.layout()
print(f"A network of {layout.size:,} weights in {len(layout.tensors)} tensors.")

# An individual is born from one seed, and every mutation adds one more.
genome = Genome(policies.reference("dqn", spec), Birth(seed=2017))
for generation in range(100):
    genome = genome.child(Gene(seed=generation, sigma=0.002))
text = to_json(GenomeFile(genome))
print(f"Individual {genome.id}, {len(genome.genes)} mutations old, is {len(text):,} bytes of JSON.")

# Decoding gives all its weights back. The first time replays the lineage; a sibling then costs
# one mutation, because their parent is in the cache.
decoder = Decoder(layout)
for relative, name in ((genome, "it"), (genome.parent.child(Gene(7, 0.002)), "a sibling")):
    start = time.perf_counter()
    decoder.decode(relative).block_until_ready()
    print(f"Decoding {name} took {1e3 * (time.perf_counter() - start):,.0f} ms.")

found = weights_hash(decoder.decode(genome))
promised = "0595afb275297b9f539e476ff668911914a36ba65f2e9d4a5ca1ac9cca1c29b6"
print(f"SHA-256 of its weights: {found}")
print("The same as on every other machine." if found == promised else f"EXPECTED {promised}!")
raise SystemExit(found != promised)
