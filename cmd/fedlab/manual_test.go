package main

import (
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
)

func TestManual(t *testing.T) { clitest.WriteManual(t, rootCommand()) }
