"""Everything that can be wrong with what a user gives: one sentence, exit code 2, no trace."""

import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from commands import content, refused
from germline import blobs, files, policies
from germline.backends import registry
from germline.files import GenomeFile, TaskRef
from germline.genome import Birth, Gene, Genome, Snapshot
from germline.run import database
from germline.run.store import Store
from runs import CARTPOLE, begin, run, small, write

IMPORT = "import seed-list seeds.json --out x"

USAGE = {
    "no such command": ("trian cartpole", "No such command 'trian'. Did you mean 'train'?"),
    "no such option": ("--loud", "No such option: --loud; see germline --help"),
    "no such export": ("export wieghts", "No such command 'wieghts'. Did you mean 'weights'?"),
    "no such genome command": ("genome nwe mlp", "Did you mean 'new'? See germline genome --help"),
    "train nothing": ("train", "Missing argument 'PRESET|SPEC'; see germline train --help"),
    "resume nothing": ("resume", "Missing argument 'run'; see germline resume --help"),
    "fork nothing": ("fork", "Missing argument 'run'; see germline fork --help"),
    "fork from nowhere": ("fork cart", "Missing option '--generation'; see germline fork --help"),
    "show nothing": ("show", "Missing argument 'run'; see germline show --help"),
    "digest nothing": ("digest", "Missing argument 'run'; see germline digest --help"),
    "play nothing": ("play", "Missing argument 'GENOME|RUN[:ID]'; see germline play --help"),
    "eval nothing": ("eval", "Missing argument 'GENOME|RUN[:ID]'; see germline eval --help"),
    "export no genome": ("export genome", "see germline export genome --help"),
    "export genome nowhere": ("export genome cart", "Missing option '--out'"),
    "export weights nowhere": ("export weights cart", "Missing option '--out'"),
    "export metrics nowhere": ("export metrics cart", "Missing option '--out'"),
    "export evaluations nowhere": ("export evaluations cart", "Missing option '--out'"),
    "no policy": ("genome new", "Missing argument 'policy'; see germline genome new --help"),
    "decode nowhere": ("genome decode egg.json", "Missing option '--out'"),
    "option of train": (
        "train gym.toml --sed 1",
        "No such option: --sed (Possible options: --key, --set)",
    ),
    "option of resume": ("resume cart --out x", "No such option: --out"),
    "option of show": ("show cart --sort mean", "No such option: --sort"),
    "option of eval": ("eval cart --out film.gif", "No such option: --out"),
    "option of play": ("play cart --workers 2", "No such option: --workers"),
    "option of digest": ("digest cart --json", "No such option: --json"),
    "option of envs": ("envs --jsn", "No such option: --jsn (Possible options: --json)"),
    "record nothing": ("record", "Missing argument 'run'; see germline record --help"),
    "record how often": ("record cart", "Missing option '--every'; see germline record --help"),
    "reproduce nothing": ("reproduce", "Missing argument 'game'; see germline reproduce --help"),
    "reproduce with a spec": ("reproduce frostbite --set seed=1", "No such option: --set"),
    "option of genome": ("genome new mlp --sed 1", "No such option: --sed"),
    "include nothing": ("prune cart --out x --include", "'--include' requires an argument"),
    "option without a value": ("train gym.toml --out", "'--out' requires an argument"),
    "two specs": ("train gym.toml more.toml", "unexpected extra argument(s) (more.toml)"),
    "two runs": ("show cart run", "unexpected extra argument(s) (run)"),
    "two folders": ("runs cart run", "unexpected extra argument(s) (run)"),
    "two presets": ("presets cartpole acrobot", "unexpected extra argument(s) (acrobot)"),
    "two patterns": ("envs Cart Pole", "unexpected extra argument(s) (Pole)"),
    "doctor whom": ("doctor me", "unexpected extra argument(s) (me); see germline doctor --help"),
}

FILES = {
    "no spec": ("train none.toml", "none.toml: No such file or directory"),
    "near a preset": ("train cartpol", "'cartpol' is neither a preset nor a file; did you mean"),
    "far from presets": (
        "train xyzzy",
        "'xyzzy' is neither a preset nor a file; there are acrobot",
    ),
    "a folder": ("train .", ".: is not a file"),
    "a device": ("train /dev/zero", "/dev/zero: is not a file"),
    "a run": ("train run", "run: is a run already; go on with it by: germline resume run"),
    "a store": ("train cart/run.db", "cart/run.db: is not valid UTF-8 text"),
    "empty spec": ("train empty.toml", "empty.toml: task: a table with a name is needed"),
    "binary spec": ("train binary.toml", "binary.toml: is not valid UTF-8 text"),
    "Latin-1 spec": ("train latin.toml", "latin.toml: is not valid UTF-8 text"),
    "huge spec": ("train huge.toml", "huge.toml: over 64 KiB, too large for a spec"),
    "truncated spec": ("train cut.toml", "cut.toml: not valid TOML: Unterminated string"),
    "deep spec": ("train deep.toml", "deep.toml: not valid TOML: nested too deeply"),
    "newer spec": ("train newer.toml", "germline: 2 is newer than this program, which reads 1"),
    "older spec": ("train older.toml", "older.toml: germline: 0 is not 1"),
    "wordy version": ("train wordy.toml", "germline: 'one' is not the version of a spec"),
    "steering name": ("train red.toml", "red.toml: name: has characters that are not allowed here"),
    "genome as a spec": ("train egg.json", "egg.json: not valid TOML"),
    "no genome": ("genome hash none.json", "none.json: No such file or directory"),
    "empty genome": ("eval empty.json", "empty.json: truncated, the file ends here"),
    "binary genome": ("genome show binary.json", "binary.json: malformed JSON"),
    "Latin-1 genome": ("genome hash latin.json", "latin.json: is not valid UTF-8 text"),
    "huge genome": ("eval huge.json", "huge.json: over 16 MiB, too large for a genome"),
    "truncated genome": ("genome show cut.json", "cut.json: layout: truncated, the file ends here"),
    "newer genome": ("eval newer.json", "germline: format 2 is not known; this program reads 1"),
    "bare genome": ("play bare.json", "bare.json: object missing required field policy"),
    "list of genomes": ("eval list.json", "list.json: expected object, got array"),
    "forged genome": ("eval forged.json", "id: the file says '0000000000000000', its contents"),
    "truncated weights": ("genome hash cut.safetensors", "cut.safetensors: is not safetensors"),
    "weights as a genome": ("eval w.safetensors", "has no germline entry, so it holds no genome"),
    "spec as a genome": ("eval gym.toml", "gym.toml: malformed JSON"),
    "run as a genome": (
        "genome show cart",
        "cart: is a run; write its champion with: germline export",
    ),
    "folder as a genome": ("play empty", "empty: is a folder without a run; see germline runs"),
    "genome as a run": ("show play.json", "play.json: is not a run: it has no run.db"),
    "spec as a run": ("resume spec.toml", "spec.toml: is not a run: it has no run.db"),
    "store as a run": ("digest cart/run.db", "cart/run.db: is not a run: it has no run.db"),
    "empty folder as a run": ("show empty", "empty: is not a run: it has no run.db"),
    "resume no run": ("resume none", "none: is not a run: it has no run.db"),
    "fork no run": ("fork none --generation 0 --out x", "none: is not a run"),
    "digest no run": ("digest none", "none: is not a run"),
    "show no run": ("show none", "none: is not a run"),
    "export of no run": ("export metrics none --out x.csv", "none: is not a run"),
    "play no run": ("play none", "none: No such file or directory"),
    "no folder of runs": (
        "runs none",
        "none: is not a folder; runs are begun with: germline train",
    ),
    "file of runs": ("runs gym.toml", "gym.toml: is not a folder"),
    "near preset": ("presets cartpol", "'cartpol' is not a preset; did you mean cartpole?"),
    "far preset": ("presets xyzzy", "'xyzzy' is not a preset; there are acrobot, amidar"),
    "preset outside": ("presets ../cartpole", "'../cartpole' is not a preset"),
    "near environment": ("envs CartPol-v1", "'CartPol-v1' is in no environment's id; did you mean"),
    "far environment": ("envs xyzzy", "'xyzzy' is in no environment's id; germline envs lists all"),
}

SPECS = {
    "no equals sign": ("--set seed", "--set: 'seed' is not key=value"),
    "no key": ("--set =5", "--set: '=5' is not key=value"),
    "unknown field": ("--set sede=1", "'sede' is not one of its settings; did you mean seed?"),
    "unknown table": ("--set a.b.c=1", "'a' is not one of its settings; there are germline, name"),
    "text for a number": ("--set seed=one", "seed: expected int, got str; given: 'one'"),
    "half a seed": ("--set seed=1.5", "seed: expected int, got float; given: 1.5"),
    "seed below": ("--set seed=-1", "seed: expected int >= 0; given: -1"),
    "seed above": ("--set seed=4294967296", "seed: expected int <= 4294967295; given: 4294967296"),
    "name upwards": (
        "--set name=../up",
        "has characters that are not allowed here; given: '../up'",
    ),
    "newer format": ("--set germline=2", "germline: 2 is newer than this program"),
    "number for a table": ("--set stop=5", "stop: must be a table"),
    "text for a table": ("--set algorithm=ga", "algorithm: a table with a name is needed"),
    "no name of a task": ("--set task.name=null", "task: a table with a name is needed"),
    "null in a list": ("--set policy.hidden=[null]", "policy: a value is null"),
    "algorithm": (
        "--set algorithm.name=gaa",
        "algorithm: 'gaa' is not registered; did you mean ga",
    ),
    "setting": ("--set algorithm.popultion=9", "algorithm ga: 'popultion' is not one of its"),
    "no population": ("--set algorithm.population=0", "population: expected int >= 1; given: 0"),
    "no sigma": ("--set algorithm.sigma=0", "algorithm ga: sigma: 0.0 must be above 0"),
    "sigma in words": ("--set algorithm.sigma=nan", "sigma: expected float or a table, got str"),
    "operator": ("--set algorithm.operator=swap", "operator: 'swap' is not one of gaussian"),
    "heads": ("--set algorithm.operator=block:head", "block:head needs a network with heads"),
    "optimizer": (
        """--set 'algorithm={"name": "es", "optimizer": "adm"}'""",
        "algorithm es: optimizer: 'adm' is not one of optax's; did you mean adam?",
    ),
    "odd population": (
        """--set 'algorithm={"name": "es", "population": 3}'""",
        "population: expected int that's a multiple of 2; given: 3",
    ),
    "task": ("--set task.name=gim", "task: 'gim' is not registered; did you mean gym?"),
    "near id": ("--set task.id=CartPole-v9", "'CartPole-v9' is not registered with Gymnasium; did"),
    "far id": ("--set task.id=Xyzzy-v0", "'Xyzzy-v0' is not registered with Gymnasium; is the"),
    "id with a module": ("--set task.id=os:system", "'os:system' names a module, and that is code"),
    "id of anything": ("--set task.id=GymV26Environment-v0", "would load any environment"),
    "number of an id": ("--set task.id=5", "task gym: id: expected str, got int; given: 5"),
    "setting of a task": ("--set task.lane=1", "'lane' is not one of its settings; did you mean"),
    "no lanes": ("--set task.lanes=0", "task gym: lanes: expected int >= 1; given: 0"),
    "wrapper": (
        """--set 'task.wrappers=["FlattenObservaton"]'""",
        "wrappers: 'FlattenObservaton' is not one of them; did you mean FlattenObservation?",
    ),
    "option of a wrapper": (
        """--set 'task.wrappers=[{"name": "TimeLimit", "options": {"max_steps": 5}}]'""",
        "CartPole-v1 cannot be made: TypeError: TimeLimit.__init__()",
    ),
    "path in an option": (
        """--set 'task.options={"xml_file": "/etc/passwd"}'""",
        "options: xml_file: '/etc/passwd' looks like a path",
    ),
    "option of an environment": (
        """--set 'task.options={"gravitas": 1}'""",
        "CartPole-v1 cannot be made: TypeError: CartPoleEnv.__init__()",
    ),
    "functional id": (
        """--set 'task={"name": "functional", "id": "CartPole"}'""",
        "task functional: id: 'CartPole' is not known; did you mean CartPole-v1?",
    ),
    "suite": (
        """--set 'task={"name": "functional", "id": "CartPole-v1", "suite": "gimnax"}'""",
        "suite: invalid enum value 'gimnax'; did you mean gymnax?",
    ),
    "gymnax id": (
        """--set 'task={"name": "functional", "id": "xyzzy", "suite": "gymnax"}'""",
        "id: 'xyzzy' is not one of gymnax's; there are CartPole-v1",
    ),
    "policy": ("--set policy.name=mpl", "policy: 'mpl' is not registered; did you mean mlp?"),
    "setting of another": ("--set policy.name=dqn", "policy dqn: settings: 'hidden' is not one of"),
    "pixels wanted": (
        """--set 'policy={"name": "dqn"}'""",
        "policy dqn: sees [84, 84, 4], the task shows [4]",
    ),
    "too few inputs": ("--set policy.inputs=3", "policy mlp: sees [3], the task shows [4]"),
    "too many outputs": ("--set policy.outputs=3", "has 3 outputs, the task takes 2"),
    "other head": (
        "--set policy.head=continuous",
        "is continuous, the task's actions are discrete",
    ),
    "no layers": ("--set policy.hidden=4", "hidden: expected array, got int; given: 4"),
    "negative layer": ("--set policy.hidden=[-4]", "hidden[0]: expected int >= 1; given: [-4]"),
    "vast layers": ("--set policy.hidden=[999999,999999]", "weights are more than the 268,435,456"),
    "activation": ("--set policy.activation=tan", "invalid enum value 'tan'; did you mean tanh?"),
    "arithmetic": ("--set arithmetic=exct", "invalid enum value 'exct'; did you mean exact?"),
    "exact floats": (
        "--set arithmetic=exact",
        "exact needs observations in whole numbers, such as pixels, not float32",
    ),
    "no checkpoints": ("--set checkpoint=0", "checkpoint: expected int >= 1; given: 0"),
    "rule": ("--set stop.scroe=5", "stop: 'scroe' is not one of its settings; did you mean score?"),
    "no generations": ("--set stop.generations=0", "stop.generations: expected int >= 1; given: 0"),
    "hours ago": ("--set stop.hours=-1", "stop.hours: expected float > 0.0; given: -1"),
    "unknown cost": ("--set stop.cost=1", "stop.cost: needs backend.price"),
    "engine of a spec": (
        "--set backend.name=celery",
        "backend.name: 'celery' is neither one of them nor an address, such as grpc://",
    ),
    "backend": ("--backend prallel", "'prallel' is neither one of them nor an address, such as"),
    "near backend": ("--backend proceses", "grpc://127.0.0.1:50051; did you mean processes?"),
    "backend of nothing": ("--backend ''", "backend.name: '' is neither one of them nor"),
    "near scheme": ("--backend rediss3://h", "'rediss3' is not the scheme of an address; did you"),
    "far scheme": ("--backend http://h", "'http' is not the scheme of an address; there are grpc"),
    "host and port alone": ("--backend h:50051", "backend.name: an address is SCHEME://HOST:PORT"),
    "no host": ("--backend grpc://", "backend.name: a grpc address needs a host, such as 127.0"),
    "no port": ("--backend grpc://h:port", "the port of a grpc address is a number from 1 to"),
    "port above": ("--backend amqp://h:65536", "the port of an amqp address is a number from 1"),
    "odd host": ("--backend grpc://h*", "backend.name: the host of a grpc address is not valid"),
    "password of grpc": ("--backend grpc://me:pw@h", "a grpc address has no user or password"),
    "path of grpc": ("--backend grpc://h:1/run", "a grpc address ends with its port"),
    "bare password": ("--backend redis://me:1/2@h", "writes /, ?, # and @ in a password as %2F"),
    "steering address": ("--backend 'redis://h\x1b[1m'", "neither spaces nor control char"),
    "endless address": (f"--backend redis://{'h' * 2000}", "at most 2,000 characters, this one"),
    "number for an address": ("--set backend.name=5", "backend.name: is text, such as processes"),
    "hidden password": ("--backend redis://:***@h", "the password of redis://:***@h:6379 is not"),
    "all the world": ("--backend grpc://0.0.0.0", "others can reach this address, so give backend"),
    "certificate alone": (
        "--backend grpc://0.0.0.0 --certificate w.safetensors",
        "backend.certificate: needs backend.key, too",
    ),
    "key alone": ("--backend grpc://h --key w", "backend.key: needs backend.certificate, too"),
    "no certificate": (
        "--backend grpc://127.0.0.1 --certificate none --key none",
        "backend.certificate: none: No such file or directory",
    ),
    "weights for a certificate": (
        "--backend grpc://127.0.0.1 --certificate w.safetensors --key w.safetensors",
        "backend.certificate: w.safetensors: is not a certificate in PEM",
    ),
    "certificate of a broker": (
        "--backend amqp://h --certificate c --key k",
        "backend.certificate: is for grpc addresses, not for amqp; use amqps:// for TLS",
    ),
    "certificate of this machine": ("--certificate c --key k", "is for grpc addresses, not for se"),
    "insecure here": ("--insecure", "backend.insecure: is for grpc addresses, not for serial"),
    "token here": ("--token-file t", "backend.token_file: is for workers elsewhere, not for ser"),
    "no token": ("--backend redis://h --token-file none", "none: No such file or directory"),
    "empty token": ("--backend redis://h --token-file empty.json", "empty.json: is empty, and a"),
    "folder for a token": ("--backend redis://h --token-file empty", "empty: is not a file"),
    "store for a token": ("--backend redis://h --token-file cart/run.db", "over 4 KiB, too large"),
    "noise for a token": ("--backend redis://h --token-file binary.json", "one line of printable"),
    "async of a centre": (
        """--async --set 'algorithm={"name": "es"}'""",
        "--async: es needs everyone of a generation; only ga does without",
    ),
    "audit of floats": ("--audit 0.1", "backend.audit: needs arithmetic = "),
    "audit above": ("--audit 1.5", "backend.audit: expected float <= 1.0; given: 1.5"),
    "audit in words": ("--audit all", "Invalid value for '--audit'"),
    "audit of nan": ("--audit nan", "backend.audit: expected float"),
    "no workers": ("--workers 0", "Invalid value for '--workers'"),
    "workers in words": ("--workers two", "Invalid value for '--workers': Input should be a valid"),
    "many workers": ("--workers 5000", "backend.workers: expected int <= 4096; given: 5000"),
    "two displays": ("--json --plain", "--json, --plain and --quiet: give one of them"),
    "three displays": ("--json --plain -q", "--json, --plain and --quiet: give one of them"),
    "imports as text": ("--set imports=os", "imports: expected array, got str; given: 'os'"),
    "imports of commands": ("""--set 'imports=["os; rm"]'""", "given: ['os; rm']"),
    "films without a board": (
        "--film-every 2",
        "--film-every: has no meaning without --tensorboard; give both",
    ),
    "films backwards": ("--tensorboard --film-every -1", "Invalid value for '--film-every'"),
    "films of numbers": (
        """--tensorboard --film-every 1 --trust --set 'imports=["games"]' """
        """--set 'task={"name": "positive"}' --set policy.inputs=2 --set policy.outputs=2""",
        "--film-every: task positive: there is nothing to look at",
    ),
    "untrusted": (
        """--set 'imports=["broken"]'""",
        "imports: broken is code; add --trust to run it",
    ),
    "no module": (
        """--trust --set 'imports=["nowhere"]'""",
        "imports: nowhere: No module named 'nowhere'",
    ),
    "broken module": (
        """--trust --set 'imports=["broken"]'""",
        "imports: broken: NameError: name 'nonsense' is not defined",
    ),
    "module without sense": (
        """--trust --set 'imports=["syntax"]'""",
        "imports: syntax: SyntaxError: invalid syntax (syntax.py, line 1)",
    ),
    "module of two lines": (
        """--trust --set 'imports=["lines"]'""",
        r"imports: lines: ValueError: one\ntwo",
    ),
    "out is a file": ("--out spec.toml", "spec.toml: cannot be made: File exists"),
    "out below a file": ("--out spec.toml/x", "spec.toml/x: cannot be made: Not a directory"),
    "out is a device": ("--out /dev/null", "/dev/null: cannot be made"),
    "out is a run": ("--out cart", "cart: holds a run already; go on with it by germline resume"),
}

PAPER = {
    "near a game": ("reproduce frostbit", "is not a game of the paper; did you mean frostbite?"),
    "far from games": ("reproduce pong", "'pong' is not a game of the paper; there are amidar"),
    "another algorithm": ("reproduce frostbite --algorithm novelty", "'novelty' is not one of"),
    "no frames": ("reproduce frostbite --frames 0", "Invalid value for '--frames'"),
    "negative seed of a game": ("reproduce frostbite --seed -1", "Invalid value for '--seed'"),
    "two displays of a game": ("reproduce frostbite --json -q", "give one of them"),
    "game at an address": ("reproduce frostbite --backend grpc://h", "others can reach this addr"),
    "audit of a game": ("reproduce frostbite --audit 1", "No such option: --audit"),
    "films of a game": ("reproduce frostbite --film-every 3", "has no meaning without"),
    "reproduce elsewhere": (
        "reproduce frostbite --out cart",
        "cart: is another run, its name is small, not reproduce-frostbite; give this one another",
    ),
    "reproduce another's damage": ("reproduce frostbite --out specless", "spec.toml: No such file"),
    "protocol": ("eval cart --protocol ale", "'ale' is not one of 'paper'"),
    "protocol with a number": (
        "eval cart --protocol paper --episodes 9",
        "--episodes: --protocol paper says how many; give one of the two",
    ),
    "protocol with a cap": ("eval cart --protocol paper --cap 9", "--cap: --protocol paper says"),
    "protocol of a pole": ("eval cart --protocol paper", "is for Atari games, and"),
    "record no run": ("record none --every 1", "none: is not a run: it has no run.db"),
    "record never": ("record cart --every 0", "Invalid value for '--every'"),
    "record backwards": ("record cart --every -2", "Invalid value for '--every'"),
    "record a song": ("record cart --every 1 --ending wav", "'wav' is not one of 'gif', 'mp4'"),
    "record nobody": ("record begun --every 1 --trust", "begun: has no champion yet"),
    "record untrusted": ("record run --every 1", "games is code; add --trust to run it"),
    "record numbers": ("record run --every 1 --trust", "there is nothing to look at"),
    "record into a file": ("record cart --every 1 --out spec.toml", "cannot be made: File exists"),
    "resume with films only": ("resume cart --film-every 2", "has no meaning without"),
}

RUNS = {
    "resume another's loudly": ("resume busy", "busy: is in use by another process"),
    "resume another's in JSON": ("resume busy --json", "busy: is in use by another process"),
    "train over a spec": ("train gym.toml --out .", "has a spec.toml that a run would replace"),
    "show far away": ("show cart --generation 99999999999999999999", "'--generation'"),
    "resume with nonsense": ("resume cart --set nonsense=1", "'nonsense' is not one of its"),
    "fork to another algorithm": (
        "fork cart --generation 0 --out x --set algorithm.name=es",
        "algorithm.name: a fork keeps the algorithm of its origin",
    ),
    "resume untrusted": ("resume run", "imports: games is code; add --trust to run it"),
    "resume another seed": ("resume cart --set seed=2", "seed would make it another run; use"),
    "resume another sigma": (
        "resume cart --set algorithm.sigma=1",
        "--set: algorithm.sigma would make it another run; use germline fork cart --generation N",
    ),
    "resume another rule": ("resume run --set stop.scroe=1", "did you mean score"),
    "resume another engine": (
        "resume cart --set backend.name=dask",
        f"there are {', '.join(registry.ALONE)}",
    ),
    "resume at an address": ("resume cart --backend grpc://0.0.0.0", "others can reach this addre"),
    "resume without a token": (
        "resume cart --backend redis://h --token-file none",
        "none: No such file or directory",
    ),
    "resume two displays": ("resume cart --json -q", "give one of them"),
    "resume a torn store": ("resume torn", "torn/run.db: cannot be read: file is not a database"),
    "resume a newer store": ("resume newer", "has version 99, newer than this program's"),
    "resume a hollow store": ("resume hollow", "has version 0, not one of this program's"),
    "resume without a spec": ("resume specless", "specless/spec.toml: No such file or directory"),
    "resume another's": (
        "resume busy --set stop.generations=9",
        "busy: is in use by another process; wait for it or stop it",
    ),
    "resume another's quietly": ("resume busy -q", "busy: is in use by another process"),
    "fork untrusted": ("fork run --generation 1 --out x", "games is code; add --trust to run it"),
    "fork unfinished": (
        "fork run --trust --generation 4 --out x",
        "--generation: 4 is not 0 to 3, those finished",
    ),
    "fork negative": ("fork cart --generation -1 --out x", "Invalid value for '--generation'"),
    "fork in words": ("fork cart --generation one --out x", "Invalid value for '--generation'"),
    "fork another network": (
        "fork cart --generation 1 --out x --set policy.hidden=[5]",
        "policy: a fork keeps the network of its origin",
    ),
    "fork another algorithm": (
        """fork cart --generation 1 --out x --set 'algorithm={"name": "es"}'""",
        "algorithm.name: a fork keeps the algorithm of its origin",
    ),
    "fork another task": (
        "fork cart --generation 1 --out x --set task.id=Pendulum-v1",
        "policy mlp: sees [4], the task shows [3]",
    ),
    "fork a bad change": ("fork cart --generation 1 --out x --set seed", "is not key=value"),
    "fork onto itself": ("fork cart --generation 1 --out cart", "cart: holds a run already"),
    "fork onto a file": ("fork cart --generation 1 --out gym.toml", "gym.toml: cannot be made"),
    "fork a torn store": ("fork torn --generation 0 --out x", "file is not a database"),
    "show a torn store": ("show torn", "torn/run.db: cannot be read: file is not a database"),
    "show a damaged store": ("show damaged", "damaged/run.db: cannot be read: database disk"),
    "show an older store": ("show older", "older/run.db: has version 0, not one of this program's"),
    "show without a spec": ("show specless", "specless/spec.toml: No such file or directory"),
    "show nobody": ("show cart --generation 9", "--generation: 9 has nobody; finished are 0 to 0"),
    "show nobody yet": ("show begun --generation 0", "0 has nobody; finished are none"),
    "show below nought": ("show cart --generation -1", "Invalid value for '--generation'"),
    "show no top": ("show cart --top 0", "Invalid value for '--top'"),
    "digest of a damaged store": ("digest damaged", "database disk image is malformed"),
    "digest of a newer store": ("digest newer", "newer/run.db: has version 99, newer than"),
}

PLAY = {
    "id too short": ("eval cart:12", "'12' is not the id of an individual: 4 to 16 hex digits"),
    "id too long": ("eval cart:00001111222233334", "is not the id of an individual"),
    "id not hex": ("play cart:wxyz", "'wxyz' is not the id of an individual: 4 to 16 hex digits"),
    "id of nobody": ("eval cart:0000", "cart: no individual has an id that begins with 0000"),
    "id of two": ("eval twins:1234", "twins: several individuals have ids that begin with 1234"),
    "id of no run": ("eval none:abcd", "none: is not a run: it has no run.db"),
    "id of a file": ("eval play.json:abcd", "play.json: is not a run: it has no run.db"),
    "no champion": ("eval begun --trust", "begun: has no champion yet: no generation is finished"),
    "eval untrusted": ("eval run", "imports: games is code; add --trust to run it"),
    "play untrusted": ("play run", "imports: games is code; add --trust to run it"),
    "eval of a torn store": ("eval torn", "torn/run.db: cannot be read: file is not a database"),
    "play of a newer store": ("play newer", "has version 99, newer than this program's"),
    "no task": ("eval egg.json", "egg.json: names no task; say what to play with --env"),
    "play no task": ("play egg.json", "egg.json: names no task; say what to play with --env"),
    "task that is not here": ("eval own.json", "task: 'kept-at-home' is not registered"),
    "nothing to see": (
        "play run --trust",
        "task positive: there is nothing to look at; germline eval",
    ),
    "other observations": ("eval cart --env Acrobot-v1", "sees [4], the task shows [6]"),
    "play others": ("play egg.json --env Pendulum-v1", "sees [4], the task shows [3]"),
    "near env": ("eval cart --env CartPole-v9", "'CartPole-v9' is not registered with Gymnasium"),
    "env of code": ("eval cart --env os:system", "'os:system' names a module, and that is code"),
    "no episodes": ("eval cart --episodes 0", "Invalid value for '--episodes'"),
    "endless episodes": ("eval cart --episodes 100001", "less than or equal to 100000"),
    "eval seed": ("eval cart --seed 4294967296", "less than or equal to 4294967295"),
    "eval cap": ("eval cart --cap 0", "Invalid value for '--cap'"),
    "eval workers": ("eval cart --workers 5000", "less than or equal to 4096"),
    "eval target": ("eval cart --at-least high", "Invalid value for '--at-least'"),
    "no screen": ("play cart --how window", "no screen to open a window on; try --how terminal"),
    "no terminal": ("play cart --how terminal", "needs a terminal; try --how text or --out film"),
    "how else": ("play cart --how loud", "'loud' is not one of 'window', 'terminal', 'text'"),
    "how and out": ("play cart --how text --out film.gif", "--how: has no meaning beside --out"),
    "too slow": ("play cart --speed 0", "Invalid value for '--speed'"),
    "too many to watch": ("play cart --episodes 1001", "less than or equal to 1000"),
    "film on a file": ("play cart --out egg.json", "egg.json: is there already; use --force"),
    "film on a folder": ("play cart --out empty", "empty: is not a file"),
    "film in no folder": ("play cart --out none/film.gif", "none is not a folder"),
    "film below a file": ("play cart --out gym.toml/film.gif", "gym.toml/film.gif: cannot be"),
    "film of no kind": (
        "play cart --out film",
        "film: is no film by its ending; there are .gif, .mp4",
    ),
    "film of odd kind": (
        "play cart --out film.xyz",
        "film.xyz: is no film by its ending; there are .gif",
    ),
    "film of stills": ("play cart --out film.png", "film.png: is no film by its ending"),
    "endless cap": ("play func --cap 3000000000 --how text", "'--cap'"),
    "eval at nan": ("eval cart --at-least nan", "--at-least: nan is not a number"),
    "import without trust": ("eval cart --import games", "games is code; add --trust"),
    "import of nothing": ("play cart --trust --import nowhere", "No module named 'nowhere'"),
}

EXPORT = {
    "genome of nobody": ("export genome cart:0000 --out x.json", "begins with 0000"),
    "genome untrusted": ("export genome run --out x.json", "games is code; add --trust to run it"),
    "genome of a begun run": ("export genome begun --trust --out x.json", "has no champion yet"),
    "genome on a file": ("export genome cart --out egg.json", "is there already; use --force"),
    "genome on a folder": ("export genome cart --out empty --force", "empty: is not a file"),
    "genome on a device": ("export genome cart --out /dev/null --force", "is not a file"),
    "genome in no folder": ("export genome cart --out none/x.json", "none/x.json: cannot be"),
    "weights on a file": ("export weights cart --out egg.json", "is there already; use --force"),
    "weights of a stump": ("export weights cut.json --out x", "truncated, the file ends here"),
    "weights in no folder": ("export weights cart --out none/x", "none/x: cannot be written"),
    "metrics as text": ("export metrics cart --out x.txt", "x.txt: is neither .csv nor .parquet"),
    "metrics as anything": ("export metrics cart --out x", "x: is neither .csv nor .parquet"),
    "metrics on a file": ("export metrics cart --out old.csv", "old.csv: is there already; use"),
    "metrics in no folder": ("export metrics cart --out none/x.parquet", "cannot be written"),
    "metrics below a file": ("export metrics cart --out gym.toml/x.csv", "Not a directory"),
    "metrics of nothing": ("export metrics begun --out x.csv", "begun: has nothing to export yet"),
    "metrics of somebody": ("export metrics cart:abcd --out x.csv", "cart:abcd: is not a run"),
    "evaluations as a sheet": ("export evaluations cart --out x.xlsx", "is neither .csv nor"),
    "evaluations of nothing": ("export evaluations begun --out x.csv", "has nothing to export yet"),
    "evaluations of damage": (
        "export evaluations damaged --out x.csv",
        "damaged/run.db: cannot be",
    ),
    "page nowhere": ("export --html cart", "Missing option '--out'; see germline export html"),
    "page of no run": ("export --html none --out x.html", "none: is not a run: it has no run.db"),
    "page of runs": ("export --html . --out x.html", ".: is not a run: it has no run.db"),
    "page of nothing": ("export --html begun --out x.html", "begun: has nothing to show yet"),
    "page of damage": ("export --html damaged --out x.html", "run.db: cannot be"),
    "page on a file": ("export html cart --out old.csv", "old.csv: is there already; use --force"),
    "page in no folder": ("export html cart --out none/x.html", "none/x.html: cannot be written"),
}

DASHBOARD = {
    "dashboard of nothing": ("dashboard none", "none: is not a folder; runs are begun with"),
    "dashboard of a file": ("dashboard gym.toml", "gym.toml: is not a folder"),
    "dashboard for all": ("dashboard . --host 0.0.0.0", "--host: 0.0.0.0 can be reached by others"),
    "dashboard at no port": ("dashboard . --port 99999", "Invalid value for '--port'"),
    "dashboard nowhere": ("dashboard . --host no.such.host.invalid --insecure", "no.such.host"),
    "dashboard without a key": ("dashboard . --certificate x.pem", "one needs the other"),
    "dashboard with no pair": (
        "dashboard . --certificate gym.toml --key gym.toml",
        "gym.toml: is no certificate of gym.toml",
    ),
    "dashboard with no token": ("dashboard . --token-file none", "none: "),
    "two dashboards": ("dashboard cart run", "unexpected extra argument(s) (run)"),
}

GENOMES = {
    "new policy": ("genome new mpl", "policy: 'mpl' is not registered; did you mean mlp?"),
    "new setting": ("genome new mlp --set hidden", "--set: 'hidden' is not key=value"),
    "new value": ("genome new mlp --set inputs=x", "inputs: expected int, got str; given: 'x'"),
    "too large": (
        "genome new mlp --set inputs=1000000 --set hidden=[1000000]",
        "policy mlp: settings: 1,000,003,000,002 weights are more than the 268,435,456 allowed",
    ),
    "exact gru": ("genome new gru --exact 9", "policy gru: has no exact arithmetic"),
    "exact age": ("genome new mlp --exact -1", "Invalid value for '--exact'"),
    "exact sigma": ("genome new mlp --exact 9 --sigma nan", "sigma: nan"),
    "exact huge": ("genome new mlp --exact 9 --sigma 1e200", "sigma: 1e+200"),
    "exact old": (f"genome new mlp --exact {'9' * 400}", "fitted to 0 to 131,072 genes"),
    "exact both": (
        "genome new mlp --exact 9 --set steps=[1,1,1] --set shifts=[1,1,1]",
        "--exact: chooses steps and shifts itself",
    ),
    "exact far": (
        "genome new mlp --exact 99999 --sigma 60000 --set hidden=[9,9,9]",
        "policy mlp: no steps fit sigma 60000.0 and 99999 genes: tensor dense",
    ),
    "sigma alone": ("genome new mlp --sigma 1", "--sigma: has no meaning without --exact"),
    "steps": ("genome new mlp --set steps=[1]", "needs one for each of the 3 layers"),
    "seed": ("genome new mlp --seed 4294967296", "seed: 4294967296"),
    "negative seed": ("genome new mlp --seed -1", "seed: -1"),
    "seed in words": ("genome new mlp --seed one", "Invalid value for '--seed'"),
    "endless seed": (f"genome new mlp --seed {'9' * 4000}", "seed"),
    "seed and weights": (
        "genome new mlp --seed 1 --weights w.safetensors",
        "--seed: has no meaning beside --weights; give one of the two",
    ),
    "no weights": ("genome new mlp --weights none.safetensors", "No such file or directory"),
    "text for weights": (
        "genome new mlp --weights gym.toml --out x",
        "gym.toml: is not safetensors: its header",
    ),
    "other weights": ("genome new mlp --weights w.safetensors --out x", "w.safetensors: tensor"),
    "new in no folder": ("genome new mlp --out no/such/folder.json", "cannot be written"),
    "new on a folder": ("genome new mlp --out empty --force", "empty: is not a file"),
    "mutate sigma": ("genome mutate egg.json --sigma nan", "sigma: nan is not a number"),
    "tiny sigma": ("genome mutate egg.json --sigma 1e-30", "sigma: 1e-30 is too small"),
    "mutate operator": ("genome mutate egg.json --operator swap", "operator: 'swap' is not one of"),
    "mutate heads": ("genome mutate egg.json --operator block:head", "this one has none"),
    "mutate without out": ("genome mutate root.safetensors", "--out: is needed, a genome that"),
    "mutate on a file": ("genome mutate egg.json --out play.json", "play.json: is there already"),
    "engine": ("genome hash egg.json --engine abacus", "'abacus' is not one of 'jax', 'numpy'"),
    "decode on itself": ("genome decode egg.json --out egg.json", "is there already; use --force"),
    "decode in no folder": ("genome decode egg.json --out none/x", "none/x: cannot be written"),
}

IMPORTS = {
    "import what": ("import seeds", "No such command 'seeds'. Did you mean 'seed-list'?"),
    "import no list": (
        "import seed-list",
        "Missing argument 'file'; see germline import seed-list",
    ),
    "import no slices": ("import uber", "Missing argument 'file'; see germline import uber --help"),
    "import of no game": ("import seed-list seeds.json --out x", "Missing option '--env'"),
    "import list nowhere": ("import seed-list seeds.json --env Pong-v4", "Missing option '--out'"),
    "import slices nowhere": ("import uber uber.json", "Missing option '--out'"),
    "import slices for a game": (
        "import uber uber.json --env Frostbite-v4 --out x",
        "No such option: --env",
    ),
    "newer id": (f"{IMPORT} --env ALE/Frostbite-v5", "'ALE/Frostbite-v5' is not NAME-v4, as in"),
    "older id": (f"{IMPORT} --env Frostbite-v0", "--env: 'Frostbite-v0' is not NAME-v4"),
    "name of a game": (f"{IMPORT} --env frostbite", "--env: 'frostbite' is not NAME-v4"),
    "near game": (f"{IMPORT} --env Frostbit-v4", "'frostbit' is no game of ale-py; did you mean"),
    "other skips": (f"{IMPORT} --env FrostbiteNoFrameskip-v4", "is no game of ale-py"),
    "few actions": (f"{IMPORT} --env Pong-v4", "has 18 outputs, the task takes 6"),
    "no list": (
        "import seed-list none.json --env Frostbite-v4 --out x",
        "No such file or directory",
    ),
    "genome for a list": (
        "import seed-list egg.json --env Frostbite-v4 --out x",
        "egg.json: expected array, got object",
    ),
    "lists of lists": (
        "import seed-list lists.json --env Frostbite-v4 --out x",
        "lists.json: [0]: expected int, got array",
    ),
    "list on a file": (
        "import seed-list seeds.json --env Frostbite-v4 --out egg.json",
        "egg.json: is there already; use --force",
    ),
    "list on a folder": (
        "import seed-list seeds.json --env Frostbite-v4 --out empty --force",
        "empty: is not a file",
    ),
    "list for slices": ("import uber seeds.json --out x", "seeds.json: expected object, got array"),
    "genome for slices": ("import uber egg.json --out x", "missing required field game"),
    "huge slices": ("import uber huge.json --out x", "huge.json: over 16 MiB, too large"),
    "device for slices": ("import uber /dev/zero --out x", "/dev/zero: is not a file"),
    "slices of pairs": ("import uber pairs.json --out x", "genes[0]: expected int, got array"),
    "slices without powers": (
        "import uber places.json --out x",
        "places.json: genes after the first: [0]: expected array, got int",
    ),
    "slices of no game": (
        "import uber nogame.json --out x",
        "'frostbit' is no game of ale-py; did",
    ),
    "slices beyond": ("import uber beyond.json --out x", "the table ends 1 numbers after place"),
    "slices on a file": ("import uber uber.json --out egg.json", "is there already; use --force"),
}

TABLE = {
    **USAGE,
    **FILES,
    **{name: (f"train gym.toml {options}", words) for name, (options, words) in SPECS.items()},
    **PAPER,
    **RUNS,
    **PLAY,
    **EXPORT,
    **DASHBOARD,
    **GENOMES,
    **IMPORTS,
}


def specs(folder):
    """Specs that are wrong, each in one way."""
    write(folder / "spec.toml")
    text = write(folder / "gym.toml", CARTPOLE).read_text()
    for name, data in {
        "empty": b"",
        "binary": bytes(range(256)),
        "latin": 'name = "käfer"'.encode("latin-1"),
        "huge": b"#" * 70_000,
        "cut": text[: text.index("CartPole") + 4].encode(),
        "deep": b"a = " + b"[" * 5000,
        "newer": text.replace("germline = 1", "germline = 2").encode(),
        "older": text.replace("germline = 1", "germline = 0").encode(),
        "wordy": text.replace("germline = 1", 'germline = "one"').encode(),
        "red": text.replace('"small"', r'"\u001b[31mred"').encode(),
    }.items():
        (folder / f"{name}.toml").write_bytes(data)


def genomes(folder):
    """Genome files that are wrong, each in one way."""
    spec = policies.make("mlp", {"inputs": 4, "hidden": [4], "outputs": 2})
    egg = Genome(policies.reference("mlp", spec), Birth(1))
    files.write(folder / "egg.json", GenomeFile(egg.child(Gene(2, 0.5))))
    files.write(folder / "play.json", GenomeFile(egg, TaskRef("gym", {"id": "CartPole-v1"})))
    files.write(folder / "own.json", GenomeFile(egg, TaskRef("kept-at-home")))
    blob = blobs.pack(np.ones(spec.layout().size, np.float32))
    root = Genome(egg.policy, Snapshot(blobs.sha256(blob)))
    files.write(folder / "root.safetensors", GenomeFile(root, weights=blob))
    text = (folder / "egg.json").read_text()
    for name, data in {
        "empty": b"",
        "binary": bytes(range(256)),
        "latin": text.replace("mlp", "käfer").encode("latin-1"),
        "cut": text[: text.index("layout") + 20].encode(),
        "newer": text.replace('"germline": 1', '"germline": 2').encode(),
        "bare": b'{"germline": 1}',
        "list": b"[]",
        "forged": text.replace(egg.child(Gene(2, 0.5)).id, "0" * 16).encode(),
        "seeds": b"[1, 2]",
        "lists": b"[[1, 2]]",
        "uber": b'{"game": "frostbite", "genes": [1, [2, 0.002]]}',
        "pairs": b'{"game": "frostbite", "genes": [[2, 0.002]]}',
        "places": b'{"game": "frostbite", "genes": [1, 2]}',
        "nogame": b'{"game": "frostbit", "genes": [1]}',
        "beyond": b'{"game": "frostbite", "genes": [249999999]}',
    }.items():
        (folder / f"{name}.json").write_bytes(data)
    with (folder / "huge.json").open("wb") as file:
        file.truncate(2**24 + 1)
    (folder / "cut.safetensors").write_bytes((folder / "root.safetensors").read_bytes()[:400])


def stores(folder):
    """Runs that are wrong, each in one way."""
    names = "busy", "torn", "damaged", "newer", "older", "twins", "specless"
    for name in names:
        shutil.copytree(folder / "cart", folder / name)
    (folder / "torn/run.db").write_bytes(b"not a database" * 100)
    whole = (folder / "damaged/run.db").read_bytes()
    (folder / "damaged/run.db").write_bytes(whole[:4096] + b"?" * (len(whole) - 4096))
    (folder / "hollow").mkdir()
    (folder / "hollow/run.db").touch()
    (folder / "specless/spec.toml").unlink()
    for name, change in {
        "newer": "PRAGMA user_version = 99",
        "older": "PRAGMA user_version = 0",
        "twins": f"INSERT INTO individuals (id, generation, seed) VALUES {twins()}",
    }.items():
        connection = sqlite3.connect(folder / name / "run.db", isolation_level=None)
        connection.execute(change)
        connection.close()


def twins():
    """Two individuals whose ids begin with 1234."""
    return ", ".join(f"({0x1234 << 48 | number}, 0, 1)" for number in (1, 2))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with everything that mistakes are made with."""
    folder = tmp_path_factory.mktemp("world")
    run(folder / "run", small())
    run(folder / "cart", small(CARTPOLE))
    begin(folder / "begun", small())
    with Store.open(folder / "cart") as store:
        assert store.reports()
    specs(folder)
    genomes(folder)
    stores(folder)
    (folder / "empty").mkdir()
    (folder / "old.csv").write_text("kept\n")
    save_file({"dense1/bias": np.zeros(4, np.float32)}, folder / "w.safetensors")
    for name, code in {
        "broken": "nonsense",
        "syntax": "def",
        "lines": "raise ValueError('one\\ntwo')",
    }.items():
        (folder / f"{name}.py").write_text(code)
    lock = database.locked(folder / "busy")
    yield folder
    os.close(lock)


@pytest.fixture
def here(world, monkeypatch):
    """Work in that folder, without a screen, and find it as it was."""
    monkeypatch.chdir(world)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    # Code of modules that a spec imports would be kept beside them.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = content(world)
    yield world
    assert content(world) == before


@pytest.mark.parametrize("case", TABLE)
def test_a_mistake_is_one_sentence_exit_2_and_changes_nothing(case, here, germline):
    line, words = TABLE[case]
    assert words in refused(germline(*shlex.split(line)))


REAL = ["no such command", "near a preset", "untrusted", "show a torn store", "no screen"]


@pytest.mark.parametrize("case", REAL)
def test_mistakes_through_the_real_command(case, here):
    line, words = TABLE[case]
    command = [Path(sys.executable).with_name("germline"), *shlex.split(line)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert words in refused((done.returncode, done.stdout, done.stderr))


def test_the_tables_share_no_name():
    parts = USAGE, FILES, SPECS, PAPER, RUNS, PLAY, EXPORT, DASHBOARD, GENOMES, IMPORTS
    assert len(TABLE) == sum(map(len, parts)) >= 80
