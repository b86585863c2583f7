"""A preset from Python: train, look, score, play on.

python examples/train.py
"""

import germline

run = germline.train(
    "cartpole",
    changes={"backend.workers": 2},
    listener=lambda report, totals: print(f"generation {report.generation}: {report.elite:.0f}"),
)
champion = run.champion  # a GenomeFile: genome, task, arithmetic
print(f"{champion.genome.id} has {len(champion.genome.genes)} genes, kept in {run.folder}")
scores = run.score(episodes=100)
print(f"{scores.mean:.1f} ± {scores.error:.1f} over 100 episodes that nobody was selected by")
raise SystemExit(scores.mean < 475)
