// Package openwrt contains the init script for OpenWrt gateways, and a test of it with a fake procd.
package openwrt
