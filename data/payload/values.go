package payload

import (
	"maps"
	"slices"
	"strconv"
)

// Value is a value of a content, with the text of the column that selects it.
type Value struct {
	Column  string // text that selects the value, for [ParseColumn]
	Path    Path   // path of the value in a tree; nil for a list
	Reading Reading
}

// maxValues is the largest number of values that Values returns.
const maxValues = 1000

// Values returns the values of a content, except objects and lists. Members have the order of their names. It returns
// at most 1,000 values.
func (c *Content) Values() (all []Value) {
	if c.isTree {
		c.addTreeValues(c.tree, nil, &all)
		return all
	}
	for _, r := range c.readings {
		if r.Availability != "" || len(all) == maxValues {
			continue
		}
		column := r.Name
		for _, l := range r.Labels {
			column += conditionText(condition{Path{{name: l.Key}}, l.Value})
		}
		all = append(all, Value{Column: column, Reading: r})
	}
	return all
}

// addTreeValues adds the values below a node of a tree.
func (c *Content) addTreeValues(node any, path Path, all *[]Value) {
	child := func(s segment, of any) { c.addTreeValues(of, append(slices.Clip(path), s), all) }
	switch node := node.(type) {
	case map[string]any:
		withID := 0
		for _, member := range node {
			if idCondition(member) != nil {
				withID++
			}
		}
		for _, name := range slices.Sorted(maps.Keys(node)) {
			s := segment{name: name}
			if id := idCondition(node[name]); id != nil && withID > 1 {
				s = segment{conditions: id} // the names of such members are numbers of slots, which may change
			}
			child(s, node[name])
		}
	case []any:
		for i, element := range node {
			child(elementSegment(element, i), element)
		}
	default:
		if len(*all) < maxValues {
			r := c.treeTime
			r.Value = node
			*all = append(*all, Value{path.String(), path, r})
		}
	}
}

// idCondition returns the condition that selects an object by its member Id, or nil if the object has no such member.
func idCondition(of any) []condition {
	object, _ := of.(map[string]any)
	if id, ok := object["Id"].(string); ok && id != "" {
		return []condition{{MemberPath("Id"), id}}
	}
	return nil
}

// elementNames are the names of members that identify an element of a list.
var elementNames = []string{"name", "n", "id", "Id", "resourceName", "key"}

// elementSegment returns the segment that selects element i of a list. If a member identifies the element, the segment
// selects by this member.
func elementSegment(element any, i int) segment {
	if object, ok := element.(map[string]any); ok {
		for _, key := range elementNames {
			if value, ok := object[key].(string); ok && value != "" {
				return segment{conditions: []condition{{MemberPath(key), value}}}
			}
		}
	}
	return segment{name: strconv.Itoa(i)}
}
