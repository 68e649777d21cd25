package config

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const maxTokens = 10_000 // some 3,000 keys; the parser's time grows with the square

// refused are the parts of YAML that a configuration has no need of. Aliases are a danger too: a few lines of them
// expand to gigabytes.
var refused = map[token.Type]string{
	token.AnchorType:     `anchors ("&name")`,
	token.AliasType:      `aliases ("*name")`,
	token.MergeKeyType:   `merge keys ("<<")`,
	token.TagType:        `tags ("!name")`,
	token.DirectiveType:  `directives ("%NAME")`,
	token.MappingKeyType: `complex keys ("? key")`,
}

// parse returns the body of the file's only document; nil when it holds only comments.
func (d *document) parse() (body ast.Node, failure *Error) {
	// The library has panicked on malformed input before, and a reload must not bring a running daemon down.
	defer func() {
		if recover() != nil {
			body, failure = nil, d.errorAt(origin{name: d.path}, "the file is not valid YAML", "")
		}
	}()
	tokens := lexer.Tokenize(strings.Join(d.lines, "\n"))
	if len(tokens) > maxTokens {
		at := d.place(tokens[maxTokens])
		return nil, d.errorAt(at, "the file has too many keys and values",
			"this is not a configuration of this program")
	}
	content, ended := false, false
	for _, t := range tokens {
		switch {
		case t.Type == token.InvalidType:
			return nil, d.syntaxError(t, t.Error)
		case refused[t.Type] != "":
			return nil, d.errorAt(d.place(t), refused[t.Type]+" are not allowed",
				"write the value out; quote text that begins with this character")
		case t.Type == token.CommentType:
		case t.Type == token.DocumentEndType:
			ended = true
		case ended, content && t.Type == token.DocumentHeaderType:
			return nil, d.errorAt(d.place(t), "a second document begins here", "keep one configuration in the file")
		default:
			content = true // also a first "---": another one would silently win
		}
	}
	return d.tree(tokens)
}

func (d *document) tree(tokens token.Tokens) (ast.Node, *Error) {
	// Duplicates are allowed here because section reports them, in our words and all of them.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			return nil, d.syntaxError(syntax.GetToken(), syntax.GetMessage())
		}
		return nil, d.errorAt(origin{name: d.path}, "the file is not valid YAML", "")
	}
	if len(file.Docs) == 0 {
		return nil, nil
	}
	return file.Docs[0].Body, nil
}

// syntaxError is what the YAML library says, with help for the two most common mistakes.
func (d *document) syntaxError(t *token.Token, message string) *Error {
	switch {
	case strings.Contains(message, "\t"):
		return d.errorAt(d.place(t), "a tab cannot indent a line", "use spaces")
	case strings.HasPrefix(message, "mapping value is not allowed"):
		return d.errorAt(d.place(t), message, `check the indentation, and put text that holds ": " in quotes`)
	default:
		return d.errorAt(d.place(t), message, "")
	}
}
