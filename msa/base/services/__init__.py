"""Work in other processes.

- `service.py`: a process that answers requests, as its owner sees it;
- `process.py`: the same process from inside;
- `requests.py`: pending requests, their futures and streams;
- `frames.py`: messages over the socket between both;
- `pool.py`: services that call functions;
- `forks.py`: forked workers of a process that has loaded a compiler.
"""
