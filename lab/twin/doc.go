// Package twin holds golden trajectories of every algorithm of the documents, and checks that the code which the
// daemons run reproduces them. They come from twin.py, which transcribes the equations literally, shares no code with
// ours, and writes each draw into the file, so that no generator of random numbers is involved. `python3 twin.py make
// testdata` writes them anew.
package twin
