package graph

import (
	"errors"
	"fmt"
	"strings"
)

// unionFind is a union-find data structure for the connected components of a graph.
type unionFind struct {
	parentByNode   []int
	componentCount int
}

func newUnionFind(n int) *unionFind {
	f := &unionFind{parentByNode: make([]int, n)}
	f.reset()
	return f
}

// reset puts each node into its own component.
func (f *unionFind) reset() {
	f.componentCount = len(f.parentByNode)
	for i := range f.parentByNode {
		f.parentByNode[i] = i
	}
}

func (f *unionFind) findRoot(i int) int {
	for f.parentByNode[i] != i {
		f.parentByNode[i] = f.parentByNode[f.parentByNode[i]]
		i = f.parentByNode[i]
	}
	return i
}

// uniteNodes merges the components that contain the nodes i and j. The root of a component is the component's smallest
// node.
func (f *unionFind) uniteNodes(i, j int) {
	i, j = f.findRoot(i), f.findRoot(j)
	if i == j {
		return
	}
	f.parentByNode[max(i, j)] = min(i, j)
	f.componentCount--
}

// Components returns the connected components of the graph. The nodes of a component are in ascending order, and
// components are ordered by their first nodes.
func (g *Graph) Components() [][]int {
	f := newUnionFind(g.nodeCount)
	for _, e := range g.edges {
		f.uniteNodes(e.I, e.J)
	}
	parts := make([][]int, 0, f.componentCount)
	at := make([]int, g.nodeCount)
	for i := range g.nodeCount {
		if r := f.findRoot(i); r != i {
			parts[at[r]] = append(parts[at[r]], i)
			continue
		}
		at[i] = len(parts)
		parts = append(parts, []int{i})
	}
	return parts
}

// IsConnected reports whether the graph has exactly one component. A graph without nodes is not connected.
func (g *Graph) IsConnected() bool { return len(g.Components()) == 1 }

// DisconnectedError is the error for a graph that is not connected. It contains the graph's components.
type DisconnectedError struct {
	Components [][]string // names of the nodes of each component
}

// RequireConnected returns a [*DisconnectedError] if the graph has more than one component.
func (g *Graph) RequireConnected() error {
	components := g.Components()
	if len(components) == 1 {
		return nil
	}
	if len(components) == 0 {
		return errors.New("the graph has no nodes")
	}
	err := &DisconnectedError{}
	for _, nodes := range components {
		part := make([]string, len(nodes))
		for k, i := range nodes {
			part[k] = g.NodeID(i)
		}
		err.Components = append(err.Components, part)
	}
	return err
}

// Error returns a text that names the first few components and the first few nodes of each component.
func (e *DisconnectedError) Error() string {
	const most = 8
	parts := make([]string, 0, most)
	for _, p := range e.Components[:min(most, len(e.Components))] {
		parts = append(parts, "{"+joinFirstWords(p, ", ", most)+"}")
	}
	rest := ""
	if len(e.Components) > most {
		rest = fmt.Sprintf(" and %d more", len(e.Components)-most)
	}
	return fmt.Sprintf("the graph is not connected: it has %d components, %s%s", len(e.Components),
		strings.Join(parts, " "), rest)
}

// joinFirstWords joins the first words of a list. If the list has more words, it appends the total number.
func joinFirstWords(words []string, with string, most int) string {
	if len(words) <= most {
		return strings.Join(words, with)
	}
	return fmt.Sprintf("%s%s… (%d in total)", strings.Join(words[:most], with), with, len(words))
}
