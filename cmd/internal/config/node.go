package config

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// scalarOf returns the value of a node that holds just one.
func scalarOf(n ast.Node) (scalar, bool) {
	switch n := n.(type) {
	case *ast.LiteralNode:
		return scalar{n.Value.Value, quoted}, true
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		t := n.GetToken()
		if t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType {
			return scalar{t.Value, quoted}, true
		}
		return scalar{t.Value, plain}, true
	default:
		return scalar{}, false
	}
}

func isNull(n ast.Node) bool {
	return n == nil || n.Type() == ast.NullType
}

// describe names a node in an error.
func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode:
		return "a section of keys"
	case *ast.SequenceNode:
		return "a list"
	}
	if s, ok := scalarOf(n); ok {
		return s.show()
	}
	return "nothing"
}
